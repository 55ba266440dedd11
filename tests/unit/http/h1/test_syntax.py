"""The pieces of HTTP/1 messages."""

import pytest

from headgate.errors import ProtocolError
from headgate.http.h1 import is_host_and_port
from headgate.http.h1.syntax import find_stray_byte, named_lines, parse_connection, split_fields


def test_stray_bytes_are_found() -> None:
    for data in (b"a\nb", b"\n", b"a\rb", b"a\r\r\n", b"a\x00b", b"\x0b", b"\x1f", b"\x7f"):
        assert find_stray_byte(data), data
    for data in (b"", b"a\r\nb\tc \xff", b"a\r\n", b"a\r"):
        assert not find_stray_byte(data), data


def test_bytes_before_the_start_are_not_searched() -> None:
    assert find_stray_byte(b"a\rb", 1)
    assert not find_stray_byte(b"a\rb", 2)
    assert find_stray_byte(b"a\rb", -1)


def test_named_lines_match_any_case_underscores_and_a_rest() -> None:
    pattern = named_lines("content-length", "x-forwarded-*")
    lines = (
        b"\r\nContent-Length:  5 \r\nX-Content-Length: 6\r\ncontent_LENGTH:7\r\nX_Forwarded-For: a\r\nX-Forward: b\r\n"
    )
    assert pattern.findall(lines) == [(b"Content-Length", b"5 "), (b"content_LENGTH", b"7"), (b"X_Forwarded-For", b"a")]


def test_fields_are_split_into_lower_case_names_and_stripped_values() -> None:
    assert split_fields(b"Host: a\r\nX-Two:\t two: words \t\r\nEmpty:\r\n") == [
        (b"host", b"a"),
        (b"x-two", b"two: words"),
        (b"empty", b""),
    ]
    assert split_fields(b"") == []


def test_members_of_connection_are_collected_from_all_lines() -> None:
    assert parse_connection([]) == frozenset()
    assert parse_connection([b"Keep-Alive"]) == {b"keep-alive"}
    assert parse_connection([b"x", b" , CLOSE ,\ty"]) == {b"x", b"close", b"y"}
    for values in ([b"close, a b"], [b"a", b"b(c"], [b"\xff"]):
        with pytest.raises(ProtocolError) as caught:
            parse_connection(values)
        assert caught.value.status == 400


def test_host_and_port() -> None:
    for host in (b"a", b"a.example.", b"127.0.0.1:80", b"[::1]", b"[::1]:8080", b"a:", b"x_y.example", b"%41"):
        assert is_host_and_port(host), host
    for host in (b"", b":80", b"a, b", b"a/b", b"u@a", b"a:8o", b"a b", b"[::1", b"a:123456", b"a#b"):
        assert not is_host_and_port(host), host
