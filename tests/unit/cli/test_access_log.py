import gzip
import io
import json
from contextlib import suppress

import pytest

from headgate.cli.access_log import MAX_LINE_SIZE, Malformed, decompressed, lines, parser
from headgate.errors import ConfigurationError

COMMON = b'192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326'
COMBINED = COMMON + b' "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'
MOMENT = 971211336.0


@pytest.mark.parametrize(
    ("field", "identifier"),
    [
        (None, b"192.0.2.1"),
        ("host", b"192.0.2.1"),
        ("remote_addr", b"192.0.2.1"),
        ("user", b"frank"),
        ("User-Agent", b"Mozilla/4.08 [en] (Win98; I ;Nav)"),
        ("referer", b"http://www.example.com/start.html"),
        ("request", b"GET /apache_pb.gif HTTP/1.0"),
        ("status", b"200"),
    ],
)
def test_any_field_of_a_combined_line_can_identify(field, identifier):
    for form in ("auto", "combined"):
        assert parser(form, field)(COMBINED) == (MOMENT, identifier)


@pytest.mark.parametrize(
    "line",
    [
        COMMON,
        COMMON.replace(b"192.0.2.1", b"2001:db8::1"),
        COMMON.replace(b"frank", b"frank of the woods"),
        COMMON.replace(b"2326", b"-"),
        COMMON.replace(b"GET /apache_pb.gif HTTP/1.0", rb"\x16\x03\x01 \" quoted"),
        COMMON + b' "-" "-" "10.0.0.1" 0.003',
        COMMON.replace(b"13:55:36 -0700", b"22:55:36 +0200"),
        COMMON.replace(b"/apache_pb.gif", b"/\xff\xfe"),
    ],
)
def test_lines_as_servers_write_them_are_parsed(line):
    moment, identifier = parser("auto")(line)
    assert moment == MOMENT
    assert identifier == line.split()[0]


def test_an_identifier_need_not_be_utf_8():
    assert parser("auto", "user")(COMMON.replace(b"frank", b"\xff\xfe")) == (MOMENT, b"\xff\xfe")
    assert parser("auto")(b'{"time": 1, "identifier": "\xff"}') == (1.0, b"\xff")
    assert parser("auto")(rb'{"time": 1, "identifier": "\udcff"}') == (1.0, b"\xff")


MALFORMED = [
    b"garbage",
    COMMON[:70],
    COMMON.replace(b"Oct", b"Okt"),
    COMMON.replace(b"10/Oct", b"31/Feb"),
    COMMON.replace(b" -0700", b""),
    COMMON.replace(b"2000", b"0000"),
    b"\0" * 200,
    b"{",
    b'{"time": 1}',
    b'{"identifier": "a"}',
    b'{"time": null, "identifier": "a"}',
    b'{"time": true, "identifier": "a"}',
    b'{"time": NaN, "identifier": "a"}',
    b'{"time": 1e999, "identifier": "a"}',
    b'{"time": "yesterday", "identifier": "a"}',
    b'{"time": "", "identifier": "a"}',
    b'{"time": "0001-01-01T00:00:00+23:59", "identifier": ["a"]}',
    b'{"time": 1, "identifier": "a"} trailing',
    b'{"a":' * 100_000,
]


def test_other_lines_are_malformed():
    accepted = []
    for line in MALFORMED:
        with suppress(Malformed):
            accepted.append((line, parser("auto")(line)))
    assert accepted == []


@pytest.mark.parametrize(
    ("time", "moment"),
    [
        (1700000000.125, 1700000000.125),
        ("1700000000.125", 1700000000.125),
        ("2023-11-14T22:13:20Z", 1700000000.0),
        ("2023-11-14T22:13:20", 1700000000.0),
        ("2023-11-14 22:13:20.125+00:00", 1700000000.125),
        ("2023-11-15T00:13:20+02:00", 1700000000.0),
        ("2023-11-14T17:13:20.5-0500", 1700000000.5),
        (-1, -1.0),
    ],
)
def test_time_is_seconds_or_iso_8601(time, moment):
    assert parser("jsonl")(json.dumps({"time": time, "identifier": "a"}).encode()) == (moment, b"a")


def test_another_key_can_identify():
    line = b'{"time": 1, "identifier": "a", "user": 42, "x-key": "k"}'
    assert parser("auto", "user")(line) == (1.0, b"42")
    assert parser("jsonl", "x-key")(line) == (1.0, b"k")


def test_an_unknown_field_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match="unknown field 'shoe' of an access log; expected one of host"):
        parser("combined", "shoe")
    with pytest.raises(ConfigurationError, match="'shoe'"):
        parser("auto", "shoe")(COMMON)
    with pytest.raises(ConfigurationError, match="'time'"):
        parser("jsonl", "time")


def test_common_lines_have_no_agent():
    with pytest.raises(Malformed, match="the field agent is missing"):
        parser("auto", "agent")(COMMON)


@pytest.mark.parametrize("text", [b"", b"a", b"a\nb\n", b"a\n\nb", b"\xef\xbb\xbfa\nb", b"x" * (3 << 20) + b"\nb\n"])
def test_lines_of_plain_and_compressed_files(text):
    expected = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    expected = expected if expected[-1] else expected[:-1]
    halves = gzip.compress(text[: len(text) // 2]) + gzip.compress(text[len(text) // 2 :])
    for stored in (text, halves):
        found = lines(decompressed(io.BytesIO(stored)))
        assert [line[: MAX_LINE_SIZE + 1] for line in found] == [line[: MAX_LINE_SIZE + 1] for line in expected]


def test_a_line_that_is_too_long_is_truncated():
    text = b"x" * (9 << 20) + b"\nb"
    first, second = lines(io.BytesIO(text))
    assert MAX_LINE_SIZE < len(first) < 3 * MAX_LINE_SIZE
    assert second == b"b"


def test_damaged_compressed_data_is_an_error_after_the_lines_before_it():
    stored = gzip.compress(b"a\n" * 5_000_000)
    found = lines(decompressed(io.BytesIO(stored[: len(stored) // 2])))
    with pytest.raises(Malformed, match="ends early"):
        assert all(line == b"a" for line in found)
