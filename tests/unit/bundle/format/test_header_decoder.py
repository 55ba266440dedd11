"""headgate.bundle.format.header_decoder."""

import pytest

from headgate.bundle.format import header_decoder
from headgate.bundle.format.cbor import CborError, encode
from headgate.bundle.format.header_decoder import FieldError, decode_headers, is_field_name, is_field_value


def test_headers_and_pseudo_headers_are_separated():
    source = encode({b":status": b"200", b"content-type": b"text/html", b"x-own": b"caf\xe9", b":path": b"/"})
    assert decode_headers(source) == (
        {"content-type": "text/html", "x-own": "caf\xe9"},
        {b":status": b"200", b":path": b"/"},
    )
    assert decode_headers(b"\xa0") == ({}, {})


def test_names_and_values_of_every_length():
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
    decode = header_decoder._decode_short_map
    headers = {"etag": '"1"', "x-amz-request-id": "x", "access-control-allow-origin": "*", "content-type": "x" * 200}
    source = encode({b":status": b"304", **{name.encode(): value.encode() for name, value in headers.items()}})
    assert decode(source) == (headers, {b":status": b"304"})
    status = encode({b":status": b"200"})
    for other in (b"", b"\xa0", encode({b"etag": b"x"}), status + b"\0", status[:-1], b"\xa2" + status[1:] * 2):
        assert decode(other) is None, other
