"""The settings that the workers of nginx need: limits, how to identify clients, and the text of rejections."""

from collections.abc import Iterator, Sequence
from itertools import count

from headgate.config.tree import Sidecar
from headgate.limit import Accounting, Gatekeeper
from headgate.limit.messages import to_milliseconds
from headgate.origin.identify import Header, parse_identify
from headgate.origin.response import PROBLEM, Rejections, Response
from headgate.origin.sidecar.nginx_lua_wire import encode_record
from headgate.release import Status

_SECONDS_MARK = b"\1"
"""Where the text of a rejection has the seconds to wait."""
_FORMS = ((b"text", None), (b"problem", PROBLEM))
"""The forms of a rejection by name, with an Accept field that prefers each."""


def settings_record(settings: Sidecar, gatekeeper: Gatekeeper, rejections: Rejections, domains: Sequence[str]) -> bytes:
    """Return the record with all settings."""
    identify = parse_identify(settings.identify)
    method = b"header:" + identify.name if isinstance(identify, Header) else b"client-address"
    content = [
        encode_record(b"delays", to_milliseconds(settings.max_delay), settings.max_delayed),
        encode_record(b"holds", to_milliseconds(settings.max_hold)),
        encode_record(b"identify", settings.ipv6_prefix, 0, method),
    ]
    for domain in domains:
        name = encode_domain(domain)
        interval = gatekeeper.spacing.get(domain)
        if interval is not None:
            # Rounded down: a sum of intervals is never longer than by the rule.
            content.append(encode_record(b"spacing", int(interval * 1_000_000), 0, name))
        for form, accept in _FORMS:
            response = _template(rejections, domain, accept)
            parts = [name, form, response.body, *(part for field in response.fields for part in field)]
            content.append(encode_record(b"rejection", response.status, 0, b"\0".join(parts)))
    return encode_record(b"settings", content=b"".join(content))


def encode_domain(domain: str) -> bytes:
    """Return the name of a domain as it is on the bus."""
    return domain.encode("utf-8", "surrogateescape")


def _template(rejections: Rejections, domain: str, accept: bytes | None) -> Response:
    """Return a rejection with a mark in place of the seconds; Content-Length is left out."""

    def render(seconds: int) -> Response:
        return rejections(Accounting(domain, Status.REJECTED, b"", 0.0, float(seconds)), now=0.0, accept=accept)

    # A number that the response has only where it has the seconds.
    other = b"".join(_texts(render(1)))
    number = next(number for number in count(1_000_000_007) if b"%d" % number not in other)
    response = render(number)
    marked = [
        (name, value.replace(b"%d" % number, _SECONDS_MARK))
        for name, value in response.fields
        if name != b"content-length"
    ]
    return Response(response.status, marked, response.body.replace(b"%d" % number, _SECONDS_MARK))


def _texts(response: Response) -> Iterator[bytes]:
    yield response.body
    for _, value in response.fields:
        yield value
