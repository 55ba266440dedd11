from http.client import HTTPMessage
from types import MappingProxyType

from headgate.throttle.fields import ThrottleFields, parse_fields

NOW = 1_763_683_200.0
ORDINARY = {"Date": "x", "content-encoding": "br", "X-Content-Type-Options": "nosniff", "Retry-Afte": "5", "": "5"}


def forms(headers):
    """Return the headers in every accepted type."""
    pairs = list(headers.items())
    message = HTTPMessage()
    for name, value in pairs:
        message[name] = value
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    return [headers, MappingProxyType(headers), message, pairs, tuple(pairs), iter(pairs), raw, iter(raw)]


FIELDS = [
    ("retry-after", " 120\t", ThrottleFields(retry_after=("120",))),
    ("retry-after", "", ThrottleFields(retry_after=("",))),
    ("ddos-bucket-with", "/api ", ThrottleFields(buckets=("/api",))),
    ("exponential-throttling", "disable", ThrottleFields(opts_out=True)),
    ("exponential-throttling", " disable\t, disable", ThrottleFields(opts_out=True)),
    ("exponential-throttling", "yesplease", ThrottleFields()),
    ("exponential-throttling", "disabled", ThrottleFields()),
    ("exponential-throttling", "Disable", ThrottleFields()),
    ("exponential-throttling", "", ThrottleFields()),
    ("location", " /a ", ThrottleFields(location="/a")),
    ("ratelimit", '"default";r=50;t=30', ThrottleFields(rate_limits=((50, 30.0),))),
    ("ratelimit", '"a, b";t=3; r=0;pk=:cGsK:, "c";r=1, "d";r=1.5;t=5', ThrottleFields(rate_limits=((0, 3.0),))),
    ("ratelimit", "limit=10, remaining=0, reset=5", ThrottleFields()),
    ("ratelimit-policy", '"a";q=100;w=60, "b";q=1;w=1', ThrottleFields(quotas=((100, 60.0), (1, 1.0)))),
    ("x-ratelimit-remaining", "5", ThrottleFields()),
    ("x-retry-after", "5", None),
]


def test_fields_in_any_type_and_spelling():
    for name, value, fields in FIELDS:
        for spell in (str.lower, str.upper, str.title):
            for headers in forms(ORDINARY | {spell(name): value}):
                assert parse_fields(headers, now=NOW) == fields, (name, value, headers)


def test_all_lines_are_read():
    lines = [("Retry-After", "5"), ("DDoS-Bucket-With", "/a"), ("retry-after", "6"), ("ddos-bucket-with", "/a/b")]
    assert parse_fields(lines, now=NOW) == ThrottleFields(buckets=("/a", "/a/b"), retry_after=("5", "6"))


def test_headers_without_these_fields_are_none():
    for headers in ({}, [], (), iter(()), ORDINARY):
        assert parse_fields(headers, now=NOW) is None, headers


def test_a_reset_is_a_number_of_seconds_or_an_instant():
    for remaining, reset, found in (
        ("7", "60", [(7, 60.0)]),
        ("0", "1763683230", [(0, 30.0)]),
        ("0", "1763683100", [(0, 0.0)]),
        ("-1", "60", []),
        ("1", "soon", []),
        ("1", "9" * 16, []),
    ):
        headers = {"X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": reset}
        assert parse_fields(headers, now=NOW).rate_limits == tuple(found)
