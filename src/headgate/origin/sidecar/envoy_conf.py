"""Writes a configuration of Envoy, which limits clients by its rate limit quota filter and a master's quota service.

Envoy needs no sidecar: it connects to `headgate master --rlqs`. The file is made from the template `envoy.yaml`; texts
of the site are written as JSON strings, which are strings of YAML too.
"""

import base64
import json
from pathlib import Path
from string import Template
from typing import Final

from headgate.config import Address
from headgate.errors import fail_if
from headgate.origin.identify import parse_address
from headgate.origin.response import QUOTA_EXCEEDED, document, ratelimit
from headgate.origin.sidecar.site import Site

DEFAULT_RLQS: Final = Address("127.0.0.1", 10_006)
"""Where the quota service is, unless the site says it."""

_TEMPLATE: Final = Path(__file__).with_name("envoy.yaml")

_HEADER_MATCHER: Final = Template("""\
                # A client is the value of a header. The address identifies requests without it, and those whose value
                # has more than 255 bytes, other characters than ASCII, or a comma: Envoy joins the values of a repeated
                # header by commas.
                matcher_list:
                  matchers:
                  - predicate:
                      single_predicate:
                        input: &header
                          name: header
                          typed_config:
                            "@type": type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput
                            header_name: $header
                        value_match: { safe_regex: { google_re2: {}, regex: '[^,\\x80-\\xff]{1,255}' } }
                    on_match:
                      action:
                        name: identifier
                        typed_config:
                          "@type": *settings
                          reporting_interval: 5s
                          bucket_id_builder:
                            bucket_id_builder:
                              $key: { custom_value: *header }
                          deny_response_settings: *rejection
""")


def configuration(site: Site) -> str:
    """Return the text of a file for ``envoy -c FILE``.

    Raises `ConfigurationError` for a listener that is not an IP address.
    """
    rlqs = site.rlqs or DEFAULT_RLQS
    body = _problem(site)
    matcher = ""
    if site.header is not None:
        key = site.header if site.header == "authorization" else "header"
        matcher = _HEADER_MATCHER.substitute(header=_string(site.header), key=key)
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        listen=_listener(site.listen),
        rlqs_text=rlqs,
        rlqs=_socket_address(rlqs),
        rlqs_discovery=_discovery(rlqs),
        origin=_socket_address(site.origin_address),
        origin_discovery=_discovery(site.origin_address),
        domain=_string(site.domain),
        status=site.rejection_status,
        header_matcher=matcher,
        body=_string(base64.b64encode(body.encode()).decode()),
        body_text=body,
        ratelimit=_string(ratelimit(site.domain, None).decode()),
    )


def _string(text: str) -> str:
    """Write a string; characters beyond ASCII stay, since YAML does not know all of JSON's escapes for them."""
    return json.dumps(text, ensure_ascii=False)


def _problem(site: Site) -> str:
    """Write the problem document of a rejection, on one line."""
    detail = f"Requests for {site.domain!r} come faster than its rule allows."
    members = {"type": QUOTA_EXCEEDED, "violated-policies": [site.domain]}
    return document(site.rejection_status, ("Too many requests", detail), members, form="problem").body.decode()


def _listener(address: Address) -> str:
    """Write the address of the listener; `*` stands for every address, IPv4 and IPv6."""
    if address.host == "*":
        return f'{{ address: "::", port_value: {address.port}, ipv4_compat: true }}'
    fail_if(
        parse_address(address.host) is None,
        f"--listen: Envoy cannot listen at the name {address.host!r}; expected an address, such as '127.0.0.1:8080'",
    )
    return _socket_address(address)


def _socket_address(address: Address) -> str:
    return f"{{ address: {_string(address.host)}, port_value: {address.port} }}"


def _discovery(address: Address) -> str:
    """Write how the cluster of an address finds it: a name is looked up again and again, in both families."""
    is_address = parse_address(address.host) is not None
    return "type: STATIC" if is_address else "type: LOGICAL_DNS\n    dns_lookup_family: ALL"
