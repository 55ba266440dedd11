"""Section 6, beyond what the vectors hold."""

import math

import pytest

from headgate.advice import AgentIdentity, parse_advice
from headgate.advice.parser import AdviceEntry, parse_advice_bytes

IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])


def entry(text: str) -> AdviceEntry | None:
    return parse_advice(text, IDENTITY)


@pytest.mark.parametrize(
    "number", ["-0", "-0.0", "-0e5", "0", "0.0", "-1e-999", "1e-999"], ids=lambda number: f"fraction {number}"
)
def test_a_fraction_of_zero_has_no_sign(number: str) -> None:
    found = entry(f'[{{"user_agent":"*","fraction":{number}}}]')
    assert found == AdviceEntry(fraction=0.0)
    assert math.copysign(1, found.fraction) == 1


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1.0000000000000002", "-1e-320", "2", "-1", "9" * 6000])
def test_a_fraction_out_of_range_is_passed_over(number: str) -> None:
    assert entry(f'[{{"user_agent":"*","fraction":{number}}}]') == AdviceEntry(fraction=1.0)


@pytest.mark.parametrize(
    ("number", "fraction"), [("1", 1.0), ("1e0", 1.0), ("1.00000000000000001", 1.0), ("5e-324", 5e-324), ("1E-1", 0.1)]
)
def test_a_fraction_within_range_is_the_nearest_double(number: str, fraction: float) -> None:
    assert entry(f'[{{"user_agent":"*","fraction":{number}}}]') == AdviceEntry(fraction=fraction)


@pytest.mark.parametrize("value", ["true", "false", "null", '"0.5"', "[0.5]", '{"a":0.5}'])
def test_what_is_no_number_is_no_fraction(value: str) -> None:
    assert entry(f'[{{"user_agent":"*","fraction":{value}}}]') == AdviceEntry()


@pytest.mark.parametrize("value", ["false", "null", '"true"', "1", "[true]", "{}"])
def test_only_true_disallows(value: str) -> None:
    assert entry(f'[{{"user_agent":"*","disallow":{value}}}]') == AdviceEntry()


@pytest.mark.parametrize("selector", ["null", "1", "true", '["*"]', '{"*":1}'])
def test_an_entry_whose_user_agent_is_no_string_is_passed_over(selector: str) -> None:
    assert entry(f'[{{"user_agent":{selector},"disallow":true}},{{"user_agent":"*"}}]') == AdviceEntry()


def test_lone_surrogates_survive_and_are_equal_to_themselves_only() -> None:
    text = '[{"user_agent":"\\ud800","disallow":true},{"user_agent":"*","fraction":0.5}]'
    assert entry(text) == AdviceEntry(fraction=0.5)
    assert parse_advice(text, AgentIdentity(["\ud800", "*"])) == AdviceEntry(disallowed=True)


def test_the_first_of_an_identitys_equal_names_has_the_index() -> None:
    identity = AgentIdentity(["*", "ExampleBot", "*"])
    text = '[{"user_agent":"ExampleBot","fraction":0.1},{"user_agent":"*","fraction":0.2}]'
    assert parse_advice(text, identity) == AdviceEntry(fraction=0.2)


@pytest.mark.parametrize("depth", [64, 100])
def test_a_document_with_deep_members_is_read(depth: int) -> None:
    text = f'[{{"user_agent":"*","x":{"[" * depth}{"]" * depth},"disallow":true}}]'
    assert entry(text) == AdviceEntry(disallowed=True)


@pytest.mark.parametrize(
    "text",
    [
        '[{{"user_agent":"*","disallow":true}},{0}]',
        '[{{"user_agent":"*","disallow":true,"x":{0}}}]',
        '{{"x":{0}}}',
    ],
)
@pytest.mark.parametrize("closing", ["]", ""])
def test_a_document_with_bottomless_members_is_refused_whole(text: str, closing: str) -> None:
    assert entry(text.format("[" * 200_000 + closing * 200_000)) is None


def test_a_document_of_many_entries_is_read() -> None:
    text = "[" + '{"user_agent":"other"},' * 50_000 + '{"user_agent":"*","disallow":true}]'
    assert entry(text) == AdviceEntry(disallowed=True)


def test_bytes_are_decoded_first() -> None:
    assert parse_advice_bytes(b'\xef\xbb\xbf[{"user_agent":"*","x":"\xff\xed\xa0\x80"}]', IDENTITY) == AdviceEntry()
    assert parse_advice_bytes("[]".encode("utf-16"), IDENTITY) is None
    assert parse_advice_bytes(b"", IDENTITY) is None


@pytest.mark.parametrize(("advice", "expected"), [((False, 1.0), True), ((True, 1.0), False), ((False, 0.99), False)])
def test_an_entry_wants_all_traffic_or_not(advice: tuple[bool, float], expected: bool) -> None:
    assert AdviceEntry(*advice).wants_all is expected
