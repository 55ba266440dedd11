from http.client import HTTPMessage
from types import MappingProxyType

import pytest

from headgate.throttle.fields import Fields, Words

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
    ("name", "value", "words"),
    [
        ("retry-after", " 120\t", Words(False, (), ("120",))),
        ("retry-after", "", Words(False, (), ("",))),
        ("ddos-bucket-with", "/api ", Words(False, ("/api",), ())),
        ("exponential-throttling", "disable", Words(True, (), ())),
        ("exponential-throttling", " disable\t, disable", Words(True, (), ())),
        ("exponential-throttling", "yesplease", None),
        ("exponential-throttling", "disabled", None),
        ("exponential-throttling", "Disable", None),
        ("exponential-throttling", "", None),
        ("x-retry-after", "5", None),
    ],
)
def test_words_in_any_form(spelled, name, value, words):
    for headers in forms(ORDINARY | {spelled(name): value}):
        assert Fields().words(headers) == words


def test_several_lines_are_all_taken():
    lines = [("Retry-After", "5"), ("DDoS-Bucket-With", "/a"), ("retry-after", "6"), ("ddos-bucket-with", "/a/b")]
    assert Fields().words(lines) == Words(False, ("/a", "/a/b"), ("5", "6"))


@pytest.mark.parametrize("headers", [{}, [], (), iter(()), ORDINARY])
def test_nothing_is_said(headers):
    fields = Fields()
    assert fields.words(headers) is None
    assert fields.words(headers) is None


def test_a_value_that_says_nothing_does_not_silence_its_name():
    fields = Fields()
    for _ in range(3):
        assert fields.words({"Exponential-Throttling": "enable"}) is None
    assert fields.words({"Exponential-Throttling": "disable"}) == Words(True, (), ())


def test_names_that_were_silent_beside_one_that_speaks():
    fields = Fields()
    assert fields.words(ORDINARY) is None
    assert fields.words(ORDINARY | {"retry-after": "5"}) == Words(False, (), ("5",))


def test_the_names_remembered_are_bounded():
    fields = Fields()
    for number in range(10_000):
        assert fields.words({f"x-{number}": "", "x" * 60 + f"{number:04}": "", "x" * 60 + f"{number:05}": ""}) is None
        assert len(fields._silent) <= 257
        assert max(map(len, fields._silent)) == 64


@pytest.mark.parametrize("form", range(len(forms({}))))
def test_what_is_remembered_silences_nothing_else_in_any_form(form):
    fields = Fields()
    for _ in range(2):
        assert fields.words(forms(ORDINARY)[form]) is None
        assert fields.words(forms(ORDINARY | {"RETRY-AFTER": "5"})[form]) == Words(False, (), ("5",))
        assert fields.words(forms({"Exponential-Throttling": "enable"})[form]) is None
        assert fields.words(forms({"Exponential-Throttling": "disable"})[form]) == Words(True, (), ())
