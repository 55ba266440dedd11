"""Text and values as the Encoding and Infra standards have them."""

import itertools
import json
import math
import sys

import pytest

from headgate.advice.parser import MAX_DEPTH, decode_utf8, parse_json


def decoded_by_the_letter(data: bytes) -> str:  # noqa: C901  # the steps are as many as the standard has
    """The UTF-8 decoder of encoding.spec.whatwg.org, section 8.1.1, byte by byte."""
    code_point, seen, needed, lower, upper = 0, 0, 0, 0x80, 0xBF
    output, queue = [], list(reversed(data))
    while True:
        byte = queue.pop() if queue else None
        if byte is None:
            if needed:
                output.append("\ufffd")
            return "".join(output)
        if needed == 0:
            if byte <= 0x7F:
                output.append(chr(byte))
            elif 0xC2 <= byte <= 0xDF:
                needed, code_point = 1, byte & 0x1F
            elif 0xE0 <= byte <= 0xEF:
                lower = 0xA0 if byte == 0xE0 else lower
                upper = 0x9F if byte == 0xED else upper
                needed, code_point = 2, byte & 0xF
            elif 0xF0 <= byte <= 0xF4:
                lower = 0x90 if byte == 0xF0 else lower
                upper = 0x8F if byte == 0xF4 else upper
                needed, code_point = 3, byte & 0x7
            else:
                output.append("\ufffd")
            continue
        if not lower <= byte <= upper:
            code_point, needed, seen, lower, upper = 0, 0, 0, 0x80, 0xBF
            queue.append(byte)
            output.append("\ufffd")
            continue
        lower, upper = 0x80, 0xBF
        code_point, seen = (code_point << 6) | (byte & 0x3F), seen + 1
        if seen == needed:
            output.append(chr(code_point))
            code_point, needed, seen = 0, 0, 0


# One byte of each kind that the decoder tells apart, and the neighbours of each.
BYTES = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_what_is_no_utf_8_is_replaced_as_the_standard_replaces_it(length: int) -> None:
    for sequence in itertools.product(BYTES, repeat=length):
        data = bytes(sequence)
        assert decode_utf8(data) == decoded_by_the_letter(data), data


@pytest.mark.parametrize("lead", [0xE0, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5])
def test_longer_sequences_are_replaced_as_the_standard_replaces_them(lead: int) -> None:
    for rest in itertools.product(BYTES, repeat=3):
        data = bytes([lead, *rest])
        assert decode_utf8(data) == decoded_by_the_letter(data), data
        assert decode_utf8(data + b"]") == decoded_by_the_letter(data + b"]"), data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbf[]", "[]"),
        (b"\xef\xbb\xbf\xef\xbb\xbf[]", "\ufeff[]"),
        (b" \xef\xbb\xbf[]", " \ufeff[]"),
        (b"\xef\xbb", "\ufffd"),
        (b"\xef\xbb[", "\ufffd["),
        (b"\xff\xfe[\x00", "\ufffd\ufffd[\x00"),
    ],
)
def test_one_byte_order_mark_is_dropped(data: bytes, text: str) -> None:
    assert decode_utf8(data) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
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
    ],
)
def test_json_is_what_javascript_says_it_is(text: str, value: object) -> None:
    assert parse_json(text) == value
    assert type(parse_json(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "[", "]", "[,]", "[1,]", "[1 2]", '{"a":1,}', "{a:1}", "{'a':1}", '{"a"}', '{"a":}', "{1:1}", "[]]",
        "[][]", "[1][",
        "01", "-01", "00", "+1", "-", ".5", "5.", "1.e5", "1e", "1e+", "0x10", "1_0", "١", "--1", "1,000", "1 e5",
        "NaN", "-NaN", "Infinity", "-Infinity", "undefined", "True", "None", "nul", "truefalse",
        '"', '"\\"', '"\\x41"', '"\\a"', '"\\u12"', '"\\u12g4"', '"\\u+123"', '"\\u 123"', '"\\u1_23"', '"\\U00000041"',
        '"\n"', '"\t"', '"\x00"', '"\x1f"', "'a'", "`a`",
        "\ufeff[]", "\x0b[]", "\x0c[]", "\x00[]", "\xa0[]", "\u2028[]", "[\u2003]", "[]\x1a", "[]\x00",
        "// a\n[]", "[/**/]",
    ],
)  # fmt: skip
def test_what_javascript_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # its text is for nobody
        parse_json(text)


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_is_read_up_to_a_bound(opening: str, closing: str) -> None:
    levels = sum(opening.count(bracket) for bracket in "[{")
    parse_json(nested(64, opening, closing))
    parse_json(nested(MAX_DEPTH // levels, opening, closing))
    with pytest.raises(ValueError, match="nested deeper"):
        parse_json(nested(MAX_DEPTH // levels + 1, opening, closing))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        nested(200_000),
        '{"a":' * 200_000,
        '[{"user_agent":"*"},' + nested(200_000) + "]",
        '{"' + '\\"' * 200_000 + '":' + nested(200_000) + "}",
        '["[","]",' + "[" * 200_000,
        "[[1]," * 200_000,
        "[" * 200_000 + '"',
    ],
)
def test_two_hundred_thousand_brackets_are_refused_wherever_they_stand(text: str) -> None:
    """By their depth: the text is not read so far that Python's stack would matter."""
    with pytest.raises(ValueError, match="nested deeper"):
        parse_json(text)


def test_an_open_quote_before_many_brackets_is_read_once() -> None:
    with pytest.raises(ValueError, match="Unterminated"):
        parse_json('"' + '\\"' * 200_000 + "[" * 1000)


def test_brackets_side_by_side_and_in_strings_are_not_nested() -> None:
    assert parse_json("[" + ",".join(["[]"] * 10_000) + "]") == [[]] * 10_000
    assert parse_json(json.dumps(["[{" * 10_000])) == ["[{" * 10_000]
    assert parse_json(json.dumps(['\\"[{' * 10_000])) == ['\\"[{' * 10_000]


def test_the_bound_leaves_room_on_pythons_stack() -> None:
    limit = sys.getrecursionlimit()
    assert 64 <= MAX_DEPTH <= limit // 4
