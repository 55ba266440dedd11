"""headgate.bundle.format.headers: header maps by 3.4 (steps 4 to 9) and 3.6 of bundled-exchanges-01."""

from http import HTTPStatus

import pytest

from headgate.bundle.format import headers
from headgate.bundle.format.cbor import CborError, encode
from headgate.bundle.format.headers import (
    FieldError,
    HeaderEncoder,
    decode_headers,
    encode_stored_headers,
    is_field_name,
    is_field_value,
    join_header_map,
    stored_headers,
)
from headgate.errors import ConfigurationError


def test_headers_and_pseudo_headers_are_separated():
    source = encode({b":status": b"200", b"content-type": b"text/html", b"x-own": b"caf\xe9", b":path": b"/"})
    assert decode_headers(source) == (
        {"content-type": "text/html", "x-own": "caf\xe9"},
        {b":status": b"200", b":path": b"/"},
    )
    assert decode_headers(b"\xa0") == ({}, {})


def test_names_and_values_of_every_length_are_decoded():
    for length in (1, 2, 22, 23, 24, 255, 256, 70_000):
        for name, value in (("etag", "v" * length), ("n" * length, "v")):
            source = encode({b":status": b"200", name.encode(): value.encode()})
            assert decode_headers(source) == ({name: value}, {b":status": b"200"}), (name[:30], value[:30], length)
    assert decode_headers(encode({b"etag": b""})) == ({"etag": ""}, {})


def test_invalid_values_are_refused():
    for value in (b" x", b"x ", b"\tx", b"x\t", b"\nx", b"x\r", b"a\0b", b"a\r\nb", b" "):
        assert not is_field_value(value), value
        with pytest.raises(FieldError) as caught:
            decode_headers(encode({b":status": b"200", b"etag": value}))
        assert caught.value.step == "3.6 step 4.3", value


def test_invalid_names_are_refused():
    rows = [
        (b"Etag", "3.6 step 4.1"),
        (b"\xc3\xa9", "3.6 step 4.1"),
        (b":Status", "3.6 step 4.1"),
        (b"e tag", "3.6 step 4.3"),
        (b"", "3.6 step 4.3"),
        (b"e(tag", "3.6 step 4.3"),
        (b"etag\n", "3.6 step 4.3"),
    ]
    for name, step in rows:
        assert not is_field_name(name), name
        with pytest.raises(FieldError) as caught:
            decode_headers(encode({b":status": b"200", name: b"x"}))
        assert caught.value.step == step, name


def test_malformed_maps_are_refused():
    for source in (b"", b"\x80", b"\xa1", b"\xa1\x41a", b"\xa1\x61a\x41b", b"\xbf\xff", b"\xa0\0"):
        with pytest.raises(CborError):
            decode_headers(source)


def test_the_fast_path_reads_short_valid_maps():
    decode = headers._decode_short_map
    fields = {"etag": '"1"', "x-amz-request-id": "x", "access-control-allow-origin": "*", "content-type": "x" * 200}
    source = encode({b":status": b"304", **{name.encode(): value.encode() for name, value in fields.items()}})
    assert decode(source) == (fields, {b":status": b"304"})
    status = encode({b":status": b"200"})
    for other in (b"", b"\xa0", encode({b"etag": b"x"}), status + b"\0", status[:-1], b"\xa2" + status[1:] * 2):
        assert decode(other) is None, other


def written(status, headers):
    return join_header_map(HeaderEncoder().encode(status, headers))


def test_the_map_has_its_keys_in_order_and_the_status_among_them():
    """RFC 8949, 4.2.1: "sorted in the bytewise lexicographic order of their deterministic encodings": shorter first."""
    headers = {"X-Content-Type-Options": "nosniff", "ETag": '"1"', "content-type": "text/html", "Age": "1"}
    assert written(200, headers) == encode(
        {
            b"age": b"1",
            b"etag": b'"1"',
            b":status": b"200",
            b"content-type": b"text/html",
            b"x-content-type-options": b"nosniff",
        }
    )


@pytest.mark.parametrize("length", [0, 1, 23, 24, 255, 256, 65_535, 65_536])
def test_names_and_values_of_every_length_are_encoded(length):
    headers = {"n" * max(length, 1): "v" * length}
    assert decode_headers(written(204, headers)) == (headers, {b":status": b"204"})


def test_upper_case_is_lowered():
    """3.6 step 4.1: "If "name" contains any upper-case or non-ASCII characters, return an error." """
    assert dict(stored_headers(HeaderEncoder().encode(200, {"Content-TYPE": "a/B"}))) == {"content-type": "a/B"}


def test_values_of_one_name_are_joined_in_order():
    pairs = [("Link", "<a>"), ("vary", "x"), ("link", "<b>"), ("LINK", "<c>")]
    assert dict(stored_headers(HeaderEncoder().encode(200, pairs))) == {"link": "<a>, <b>, <c>", "vary": "x"}


@pytest.mark.parametrize(
    ("values", "joined"), [(["", ""], ""), (["", "a"], "a"), (["a", " "], "a"), (["a", "", "b"], "a, b")]
)
def test_an_empty_value_joins_nothing(values, joined):
    """3.6 step 4.3: a value that ends in a space "doesn't satisfy the requirements for a header in [FETCH]"."""
    entries = HeaderEncoder().encode(200, [("vary", value) for value in values])
    assert dict(stored_headers(entries)) == {"vary": joined}
    assert decode_headers(join_header_map(entries))[0] == {"vary": joined}


def test_two_cookies_are_refused():
    """3.6 step 4.4, note: "This means that a response cannot set more than one cookie"."""
    assert dict(stored_headers(HeaderEncoder().encode(200, {"Set-Cookie": "a=1"}))) == {"set-cookie": "a=1"}
    for second in ("set-cookie", "Set-Cookie"):
        with pytest.raises(ConfigurationError, match="more than one cookie"):
            HeaderEncoder().encode(200, [("Set-Cookie", "a=1"), (second, "b=2")])


@pytest.mark.parametrize("value", [" a ", "\ta\r\n", "\n a"])
def test_whitespace_around_a_value_is_left_out(value):
    assert dict(stored_headers(HeaderEncoder().encode(200, {"x": value}))) == {"x": "a"}


@pytest.mark.parametrize("value", ["", " \t ", "a\tb", "é", "\x80\xff", "a b"])
def test_values_that_may_be(value):
    fields, _ = decode_headers(written(200, {"x": value}))
    assert fields == {"x": value.strip()}


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", "a\x01b", "a\x7fb", "\x1f"])
def test_a_control_character_in_a_value_is_refused(value):
    with pytest.raises(ConfigurationError, match="of x has a control character in it"):
        HeaderEncoder().encode(200, {"x": value})


def test_value_that_is_not_bytes_is_refused():
    with pytest.raises(ConfigurationError, match="'雪' of x is not Latin-1"):
        HeaderEncoder().encode(200, {"x": "雪"})


@pytest.mark.parametrize("name", ["", " ", "a b", "a:", "é", "a\n", "(a)", "a\0", "\u212a"])
def test_name_must_be_a_token(name):
    encoder = HeaderEncoder()
    for _ in range(2):  # what was refused once is not remembered as right
        with pytest.raises(ConfigurationError, match="is not a header name"):
            encoder.encode(200, {name: "x"})


@pytest.mark.parametrize("name", [":status", ":method", ":"])
def test_pseudo_headers_are_not_the_callers(name):
    """3.4 step 7: "If "pseudos" does not have a key named ':status' or its size isn't 1, return an error." """
    with pytest.raises(ConfigurationError, match="is a pseudo-header"):
        HeaderEncoder().encode(200, {name: "200"})


@pytest.mark.parametrize("status", [100, 999, HTTPStatus.NOT_FOUND])
def test_a_status_is_three_digits(status):
    """3.4 step 8: "If "pseudos[':status']" isn't exactly 3 ASCII decimal digits, return an error." """
    _, pseudos = decode_headers(written(status, {}))
    assert pseudos == {b":status": str(int(status)).encode()}


@pytest.mark.parametrize("status", [99, 1000, 0, -200, "200", 200.0, None])
def test_any_other_status_is_refused(status):
    with pytest.raises(ConfigurationError, match="is not an integer of three digits"):
        HeaderEncoder().encode(status, {})


def test_a_map_is_shorter_than_what_readers_refuse():
    """3.4 step 4: "If "headerLength" is 524288 (512*1024) or greater, return an error." """
    frame = len(written(200, {"x": "v" * 100_000})) - 100_000
    assert len(written(200, {"x": "v" * (524_287 - frame)})) == 524_287
    with pytest.raises(ConfigurationError, match="the headers take 524288 bytes"):
        written(200, {"x": "v" * (524_288 - frame)})


def test_headers_that_were_read_are_written_as_they_were():
    stored = encode({b":status": b"099", b"x": b"\x01\xff", b"a": b""})
    headers, pseudos = decode_headers(stored)
    assert join_header_map(encode_stored_headers(int(pseudos[b":status"]), headers)) == stored


def test_names_beyond_counting_are_not_all_remembered():
    encoder = HeaderEncoder()
    for number in range(10_000):
        encoder.encode(200, {f"x-{number}": "1"})
    assert len(encoder._names) < 5_000
