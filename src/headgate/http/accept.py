"""`Accept`: which of the media types on offer the other side likes best (RFC 9110, section 12.5.1)."""

from collections.abc import Sequence

__all__ = ["negotiate", "quality"]


def quality(accept: bytes, media_type: bytes) -> float:
    """Say how much `accept` likes `media_type`, from 0.0 (not acceptable) to 1.0.

    The most specific range that covers the type decides: the type itself, then `type/*`, then `*/*`. Parameters of a
    range other than `q` are ignored. An unreadable member counts as absent, an unreadable `q` as 1.
    """
    wanted = media_type.lower()
    kind = wanted.partition(b"/")[0] + b"/*"
    found: dict[bytes, float] = {}
    for member in accept.split(b","):
        media_range, *parameters = member.split(b";")
        media_range = media_range.strip().lower()
        if media_range in (wanted, kind, b"*/*"):
            found[media_range] = max(found.get(media_range, 0.0), _weight(parameters))
    return found.get(wanted, found.get(kind, found.get(b"*/*", 0.0)))


def negotiate(accept: bytes | None, offers: Sequence[bytes]) -> bytes:
    """Return the one of `offers` that `accept` likes best; the earliest of equals, and the first when none is liked.

    RFC 9110 lets an origin answer in a type that was not asked for rather than with nothing (section 12.5.1), and
    a field that is absent accepts everything.
    """
    if accept is None:
        return offers[0]
    return max(offers, key=lambda offer: quality(accept, offer))


def _weight(parameters: Sequence[bytes]) -> float:
    """Read `q` among the parameters of one range: 0.0 to 1.0 (RFC 9110, section 12.4.2)."""
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip().lower() == b"q":
            digits = value.strip()
            if digits.replace(b".", b"", 1).isdigit():
                return min(float(digits), 1.0)
    return 1.0
