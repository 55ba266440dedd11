"""Weighted lists, and `Accept`: which of the media types on offer the other side likes best (RFC 9110, section 12)."""

from collections.abc import Mapping, Sequence

__all__ = ["negotiate", "quality", "weigh"]


def weigh(field: bytes) -> dict[bytes, float]:
    """Read a list whose members have weights: from each member, in lower case, to its weight, in the field's order.

    Weights are from 0.0 (not acceptable) to 1.0, and parameters other than `q` are ignored (RFC 9110, section 12.4.2).
    An unreadable member counts as absent, an unreadable `q` as 1; a member that is there twice has the greater weight.
    """
    found: dict[bytes, float] = {}
    for member in field.lower().split(b","):
        name, _, parameters = member.partition(b";")
        if name := name.strip():
            found[name] = max(found.get(name, 0.0), _weight(parameters) if parameters else 1.0)
    return found


def quality(accept: bytes, media_type: bytes) -> float:
    """Say how much `accept` likes `media_type`, from 0.0 (not acceptable) to 1.0.

    The most specific range that covers the type decides: the type itself, then `type/*`, then `*/*`.
    """
    return _quality(weigh(accept), media_type)


def negotiate(accept: bytes | None, offers: Sequence[bytes]) -> bytes:
    """Return the one of `offers` that `accept` likes best; the earliest of equals, and the first when none is liked.

    RFC 9110 lets an origin answer in a type that was not asked for rather than with nothing (section 12.5.1), and
    a field that is absent accepts everything.
    """
    if accept is None:
        return offers[0]
    ranges = weigh(accept)
    return max(offers, key=lambda offer: _quality(ranges, offer))


def _quality(ranges: Mapping[bytes, float], media_type: bytes) -> float:
    wanted = media_type.lower()
    kind = wanted.partition(b"/")[0] + b"/*"
    return ranges.get(wanted, ranges.get(kind, ranges.get(b"*/*", 0.0)))


def _weight(parameters: bytes) -> float:
    """Read `q`, in lower case, among the parameters of one member: 0.0 to 1.0 (RFC 9110, section 12.4.2)."""
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            digits = value.strip()
            if digits.replace(b".", b"", 1).isdigit():
                return min(float(digits), 1.0)
    return 1.0
