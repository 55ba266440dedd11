import json
import math
import re
import sys
from base64 import b64decode
from email.utils import formatdate
from pathlib import Path

import pytest

from headgate.advice import AgentIdentity, parse_advice
from headgate.advice.fetching import AdviceResponse, interpret
from headgate.advice.freshness import fresh_for
from headgate.advice.parser import MAX_DEPTH, AdviceEntry, decode_utf8, parse_advice_bytes, parse_json, result_to_json
from tests.quotes import quotes

VECTORS = Path(__file__).parents[2] / "vectors" / "advice"
IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])
NOW = 1_700_000_000.0


@quotes("traffic-advice 6", "3. Let bestMatch be null.", "6. Let entry be a traffic advice entry.")
@quotes(
    "traffic-advice 6",
    "2. If parsed is not a list, then return null.",
    "4. For each entry of parsed:",
    "1. If entry is not a map, then continue.",
    '2. If entry["user_agent"] does not exist or is not a string, then continue.',
    '3. Let agentSelector be entry["user_agent"]. 4. If identity does not contain agentSelector, then continue.',
    "5. If bestMatch is null or agentSelector appears at an earlier index in identity than "
    'bestMatch["user_agent"] does, then set bestMatch to entry.',
    "5. If bestMatch is null, then return null.",
    '7. If bestMatch["disallow"] exists and is true, then set entry\'s disallowed flag to true.',
    '8. If bestMatch["fraction"] exists and is a number, then: 1. Let fraction be bestMatch["fraction"].',
    "2. If fraction is greater than or equal to 0 and less than or equal to 1, then set entry's fraction to fraction.",
    "9. Return entry.",
)
def test_vectors_of_documents():
    for case in json.loads((VECTORS / "parse.json").read_text())["cases"]:
        body = b"".join(b64decode(part) * times for part, times in case["body"])
        result = parse_advice_bytes(body, AgentIdentity(case["identity"]))
        assert result_to_json(result) == case["expected"], case["name"]


@quotes(
    "traffic-advice 5",
    "3. Let parseResult be the result of parsing traffic advice from string given identity.",
    "4. Run whenComplete with parseResult.",
)
def test_vectors_of_responses():
    def insert_dates(value):
        return re.sub(r"@DATE([+-]\d+)@", lambda match: formatdate(NOW + int(match[1]), usegmt=True), value)

    for case in json.loads((VECTORS / "fetch.json").read_text())["cases"]:
        fields = [(name, insert_dates(value)) for name, value in case["headers"]]
        response = AdviceResponse(case["status"], fields, None if "how" in case else b64decode(case["body"]))
        result = interpret(response, IDENTITY)
        assert result_to_json(result) == case["expected"], case["name"]
        if "fresh_for" in case:
            assert fresh_for(response, result, now=NOW) in case["fresh_for"], case["name"]


def parse(text):
    return parse_advice(text, IDENTITY)


def test_fraction_of_zero_has_no_sign():
    for number in ("-0", "-0.0", "-0e5", "0", "0.0", "-1e-999", "1e-999"):
        entry = parse(f'[{{"user_agent":"*","fraction":{number}}}]')
        assert entry == AdviceEntry(fraction=0.0)
        assert math.copysign(1, entry.fraction) == 1


FRACTIONS = [
    ("1", 1.0),
    ("1e0", 1.0),
    ("1.00000000000000001", 1.0),
    ("5e-324", 5e-324),
    ("1E-1", 0.1),
    # Out of range, or not a number: ignored.
    *((number, 1.0) for number in ("1e999", "-1e999", "1.0000000000000002", "-1e-320", "2", "-1", "9" * 6000)),
    *((value, 1.0) for value in ("true", "false", "null", '"0.5"', "[0.5]", '{"a":0.5}')),
]


def test_fraction_is_the_nearest_double_from_0_to_1():
    for number, fraction in FRACTIONS:
        assert parse(f'[{{"user_agent":"*","fraction":{number}}}]') == AdviceEntry(fraction=fraction), number[:40]


def test_lone_surrogate_is_kept():
    text = '[{"user_agent":"\\ud800","disallow":true},{"user_agent":"*","fraction":0.5}]'
    assert parse(text) == AdviceEntry(fraction=0.5)
    assert parse_advice(text, AgentIdentity(["\ud800", "*"])) == AdviceEntry(disallowed=True)


def test_first_of_equal_names_of_an_identity_counts():
    identity = AgentIdentity(["*", "ExampleBot", "*"])
    text = '[{"user_agent":"ExampleBot","fraction":0.1},{"user_agent":"*","fraction":0.2}]'
    assert parse_advice(text, identity) == AdviceEntry(fraction=0.2)


def test_deep_members_are_read_and_members_nested_too_deep_refuse_the_document():
    for depth in (64, 100):
        text = f'[{{"user_agent":"*","x":{"[" * depth}{"]" * depth},"disallow":true}}]'
        assert parse(text) == AdviceEntry(disallowed=True)
    for start, end in (
        ('[{"user_agent":"*","disallow":true},', "]"),
        ('[{"user_agent":"*","disallow":true,"x":', "}]"),
        ('{"x":', "}"),
    ):
        for closing in ("]", ""):
            assert parse(start + "[" * 200_000 + closing * 200_000 + end) is None


def test_document_of_many_entries_is_read():
    text = "[" + '{"user_agent":"other"},' * 50_000 + '{"user_agent":"*","disallow":true}]'
    assert parse(text) == AdviceEntry(disallowed=True)


@quotes("traffic-advice 5", "2. Let string be the result of UTF-8 decoding body.")
def test_bytes_are_decoded_as_utf_8():
    assert parse_advice_bytes(b'\xef\xbb\xbf[{"user_agent":"*","x":"\xff\xed\xa0\x80"}]', IDENTITY) == AdviceEntry()
    assert parse_advice_bytes("[]".encode("utf-16"), IDENTITY) is None
    assert parse_advice_bytes(b"", IDENTITY) is None


@quotes("traffic-advice 3", "A traffic advice entry is a struct with the following items:")
def test_entry_wants_all_traffic_unless_a_member_reduces_it():
    assert AdviceEntry().wants_all
    assert not AdviceEntry(disallowed=True).wants_all
    assert not AdviceEntry(fraction=0.99).wants_all


def test_one_byte_order_mark_is_dropped_and_invalid_utf_8_is_replaced():
    for data, text in (
        (b"\xef\xbb\xbf[]", "[]"),
        (b"\xef\xbb\xbf\xef\xbb\xbf[]", "\ufeff[]"),
        (b" \xef\xbb\xbf[]", " \ufeff[]"),
        (b"\xef\xbb", "\ufffd"),
        (b"\xef\xbb[", "\ufffd["),
        (b"\xff\xfe[\x00", "\ufffd\ufffd[\x00"),
        (b"\xc0\xaf\xf5", "\ufffd" * 3),
        (b"\xed\xa0\x80]", "\ufffd" * 3 + "]"),
        (b"\xf0\x90\x80]\xf4\x90", "\ufffd]\ufffd\ufffd"),
    ):
        assert decode_utf8(data) == text, data


JSON = [
    (" \t\r\n[ \t\r\n] \t\r\n", []),
    ('{"a":1,"a":2}', {"a": 2.0}),
    ('{"a":1,"b":2,"a":3}', {"a": 3.0, "b": 2.0}),
    ('"\\ud800"', "\ud800"),
    ('"\\udc00\\ud800"', "\udc00\ud800"),
    ('"\\uD83D\\uDE00"', "\U0001f600"),
    ('"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\/\b\f\n\r\t'),
    ('"\x7f\u2028\u2029\ufeff"', "\x7f\u2028\u2029\ufeff"),
    ("1e2", 100.0),
    ("1E+2", 100.0),
    ("12345678901234567890", 12345678901234567000.0),
    ("0.1", 0.1),
    ("9" * 6000, math.inf),
    ("-" + "9" * 6000, -math.inf),
    ("1e999", math.inf),
    ("-1e999", -math.inf),
    ("1e-999", 0.0),
    ("0." + "0" * 6000 + "1", 0.0),
    ("1e" + "9" * 6000, math.inf),
    ("1" + "0" * 6000 + "e-6000", 1.0),
    ("true", True),
    ("null", None),
]


def test_valid_json_has_the_value_that_javascript_gives_it():
    for text, value in JSON:
        assert parse_json(text) == value, text[:40]
        assert type(parse_json(text)) is type(value), text[:40]


INVALID_JSON = [
    "", " ", "[", "]", "[,]", "[1,]", "[1 2]", '{"a":1,}', "{a:1}", "{'a':1}", '{"a"}', '{"a":}', "{1:1}", "[]]",
    "[][]", "[1][",
    "01", "-01", "00", "+1", "-", ".5", "5.", "1.e5", "1e", "1e+", "0x10", "1_0", "١", "--1", "1,000", "1 e5",
    "NaN", "-NaN", "Infinity", "-Infinity", "undefined", "True", "None", "nul", "truefalse",
    '"', '"\\"', '"\\x41"', '"\\a"', '"\\u12"', '"\\u12g4"', '"\\u+123"', '"\\u 123"', '"\\u1_23"', '"\\U00000041"',
    '"\n"', '"\t"', '"\x00"', '"\x1f"', "'a'", "`a`",
    "\ufeff[]", "\x0b[]", "\x0c[]", "\x00[]", "\xa0[]", "\u2028[]", "[\u2003]", "[]\x1a", "[]\x00",
    "// a\n[]", "[/**/]",
]  # fmt: skip


def is_refused(text):
    try:
        parse_json(text)
    except ValueError:
        return True
    return False


@quotes(
    "traffic-advice 6",
    "To parse traffic advice from a string string given agent identity identity: 1. Let parsed be the "
    "result of parsing JSON into Infra values given string. If this throws an exception, then return "
    "null.",
)
def test_json_that_javascript_refuses_is_refused():
    assert [text for text in INVALID_JSON if not is_refused(text)] == []


def nested(depth, opening="[", closing="]"):
    return opening * depth + "1" + closing * depth


def test_nesting_is_limited():
    for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")):
        levels = sum(opening.count(bracket) for bracket in "[{")
        parse_json(nested(64, opening, closing))
        parse_json(nested(MAX_DEPTH // levels, opening, closing))
        with pytest.raises(ValueError, match="nested deeper"):
            parse_json(nested(MAX_DEPTH // levels + 1, opening, closing))


def test_200_000_brackets_are_refused_for_their_depth():
    for text in (
        "[" * 200_000,
        nested(200_000),
        '{"a":' * 200_000,
        '[{"user_agent":"*"},' + nested(200_000) + "]",
        '{"' + '\\"' * 200_000 + '":' + nested(200_000) + "}",
        '["[","]",' + "[" * 200_000,
        "[[1]," * 200_000,
        "[" * 200_000 + '"',
    ):
        with pytest.raises(ValueError, match="nested deeper"):
            parse_json(text)


def test_unterminated_string_before_many_brackets_is_refused():
    with pytest.raises(ValueError, match="Unterminated"):
        parse_json('"' + '\\"' * 200_000 + "[" * 1000)


def test_brackets_side_by_side_and_in_strings_are_not_nested():
    assert parse_json("[" + ",".join(["[]"] * 10_000) + "]") == [[]] * 10_000
    assert parse_json(json.dumps(["[{" * 10_000])) == ["[{" * 10_000]
    assert parse_json(json.dumps(['\\"[{' * 10_000])) == ['\\"[{' * 10_000]


def test_maximum_nesting_fits_into_the_stack():
    assert 64 <= MAX_DEPTH <= sys.getrecursionlimit() // 4
