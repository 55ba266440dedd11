"""The settings that the workers of nginx need: limits, how to identify clients, and the text of rejections."""

from collections.abc import Sequence

from headgate.config.tree import Sidecar
from headgate.limit import Gatekeeper
from headgate.limit.messages import to_milliseconds
from headgate.origin.identify import Header, parse_identify
from headgate.origin.response import PROBLEM, Rejections
from headgate.origin.sidecar.nginx_lua_wire import encode_record
from headgate.origin.sidecar.rejection_template import rejection_template

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
            response = rejection_template(rejections, domain, accept, mark=_SECONDS_MARK)
            parts = [name, form, response.body, *(part for field in response.fields for part in field)]
            content.append(encode_record(b"rejection", response.status, 0, b"\0".join(parts)))
    return encode_record(b"settings", content=b"".join(content))


def encode_domain(domain: str) -> bytes:
    """Return the name of a domain as it is on the bus."""
    return domain.encode("utf-8", "surrogateescape")
