from http.client import HTTPMessage
from types import MappingProxyType

import pytest

from headgate.throttle.fields import ThrottleFields, parse_fields

ORDINARY = {"Date": "x", "content-encoding": "br", "X-Content-Type-Options": "nosniff", "Retry-Afte": "5", "": "5"}


def forms(headers):
    """Give every way to hand fields over."""
    pairs = list(headers.items())
    message = HTTPMessage()
    for name, value in pairs:
        message[name] = value
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    return [headers, MappingProxyType(headers), message, pairs, tuple(pairs), iter(pairs), raw, iter(raw)]


@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title])
@pytest.mark.parametrize(
    ("name", "value", "fields"),
    [
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
    ],
)
def test_fields_in_any_form(spelled, name, value, fields):
    for headers in forms(ORDINARY | {spelled(name): value}):
        assert parse_fields(headers) == fields


def test_several_lines_are_all_taken():
    lines = [("Retry-After", "5"), ("DDoS-Bucket-With", "/a"), ("retry-after", "6"), ("ddos-bucket-with", "/a/b")]
    assert parse_fields(lines) == ThrottleFields(False, ("/a", "/a/b"), ("5", "6"))


@pytest.mark.parametrize("headers", [{}, [], (), iter(()), ORDINARY, {"Exponential-Throttling": "enable"}])
def test_nothing_is_said(headers):
    assert parse_fields(headers) is None
