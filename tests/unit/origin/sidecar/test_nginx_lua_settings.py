"""The settings that the workers of nginx receive."""

import pytest

from headgate.config.tree import Sidecar
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Rejections
from headgate.origin.sidecar import nginx_lua_wire
from headgate.origin.sidecar.nginx_lua import encode_domain, settings_record
from headgate.origin.sidecar.nginx_lua_wire import RecordReader


@pytest.fixture(autouse=True)
def _long_records(monkeypatch):
    monkeypatch.setattr(nginx_lua_wire, "MAX_RECEIVED_BYTES", 100_000)


def settings_of(domains=("api",), spacing=None, rules=(), **settings):
    """Return the records among the settings, by kind."""
    gatekeeper = Gatekeeper(spacing=spacing)
    rejections = Rejections([Domain(name, rules) for name in domains], status=settings.get("rejection_status", 503))
    (record,) = RecordReader().feed(settings_record(Sidecar(**settings), gatekeeper, rejections, domains))
    assert record.kind == b"settings"
    found = {}
    for inner in RecordReader().feed(record.content):
        found.setdefault(inner.kind, []).append(inner)
    return found


def test_limits_are_in_milliseconds():
    found = settings_of(max_delay=2.5, max_delayed=7, max_hold=60.0)
    assert found[b"delays"][0][1:3] == (2_500, 7)
    assert found[b"holds"][0].first == 60_000


@pytest.mark.parametrize(
    ("text", "method"),
    [("client-address", b"client-address"), (" header: X-Api-Key ", b"header:x-api-key")],
)
def test_the_method_is_in_its_shortest_form(text, method):
    (identify,) = settings_of(identify=text, ipv6_prefix=56)[b"identify"]
    assert (identify.first, identify.content) == (56, method)


def test_spacing_is_rounded_down_and_only_for_domains_with_rules():
    found = settings_of(("api", "other"), {"api": 1 / 3})
    assert [record[1:] for record in found[b"spacing"]] == [(333_333, 0, b"api")]


def test_a_rejection_has_a_mark_in_place_of_the_seconds():
    found = settings_of(("api",), rules=(Rule.parse("5/s burst 5"),), rejection_status=429)
    text, problem = found[b"rejection"]
    name, form, body, *fields = text.content.split(b"\0")
    assert (text.first, name, form) == (429, b"api", b"text")
    assert body.endswith(b"accepted in \1 s.\n")
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    assert values[b"retry-after"] == b"\1"
    assert values[b"ratelimit"] == b'"api";r=0;t=\1'
    assert values[b"ratelimit-policy"] == b'"api";q=5;w=1'
    assert b"content-length" not in values
    assert problem.content.split(b"\0")[1] == b"problem"


def test_a_domain_has_the_bytes_that_it_has_on_the_bus():
    assert encode_domain("ü\udcff") == b"\xc3\xbc\xff"
