from http.client import HTTPMessage
from types import MappingProxyType

from headgate.throttle.fields import ThrottleFields, parse_fields

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
    ("retry-after", " 120\t", ThrottleFields(False, (), ("120",))),
    ("retry-after", "", ThrottleFields(False, (), ("",))),
    ("ddos-bucket-with", "/api ", ThrottleFields(False, ("/api",), ())),
    ("exponential-throttling", "disable", ThrottleFields(True, (), ())),
    ("exponential-throttling", " disable\t, disable", ThrottleFields(True, (), ())),
    ("exponential-throttling", "yesplease", None),
    ("exponential-throttling", "disabled", None),
    ("exponential-throttling", "Disable", None),
    ("exponential-throttling", "", None),
    ("x-retry-after", "5", None),
]


def test_fields_in_any_type_and_spelling():
    for name, value, fields in FIELDS:
        for spell in (str.lower, str.upper, str.title):
            for headers in forms(ORDINARY | {spell(name): value}):
                assert parse_fields(headers) == fields, (name, value, headers)


def test_all_lines_are_read():
    lines = [("Retry-After", "5"), ("DDoS-Bucket-With", "/a"), ("retry-after", "6"), ("ddos-bucket-with", "/a/b")]
    assert parse_fields(lines) == ThrottleFields(False, ("/a", "/a/b"), ("5", "6"))


def test_headers_without_these_fields_are_none():
    for headers in ({}, [], (), iter(()), ORDINARY, {"Exponential-Throttling": "enable"}):
        assert parse_fields(headers) is None, headers
