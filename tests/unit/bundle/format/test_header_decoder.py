"""headgate.bundle.format.header_decoder."""

import pytest

from headgate.bundle.format.cbor import CborError, encode
from headgate.bundle.format.header_decoder import (
    FieldError,
    decode_common_headers,
    decode_headers,
    is_field_name,
    is_field_value,
)


class TestReading:
    def test_headers_and_pseudo_headers_come_apart(self):
        source = encode({b":status": b"200", b"content-type": b"text/html", b"x-own": b"caf\xe9", b":path": b"/"})
        headers, pseudos = decode_headers(source)
        assert headers == {"content-type": "text/html", "x-own": "café"}
        assert pseudos == {b":status": b"200", b":path": b"/"}

    @pytest.mark.parametrize("value", [b"x" * 23, b"x" * 24, b"x" * 255, b"x" * 256, b"", b"a b"])
    def test_values_of_every_length(self, value):
        source = encode({b":status": b"200", b"etag": value})
        assert decode_headers(source) == ({"etag": value.decode()}, {b":status": b"200"})

    @pytest.mark.parametrize("value", [b" x", b"x ", b"\tx", b"x\t", b"\nx", b"x\r", b"a\0b", b"a\r\nb", b" "])
    def test_a_value_that_fetch_refuses_is_refused(self, value):
        assert not is_field_value(value)
        with pytest.raises(FieldError) as caught:
            decode_headers(encode({b":status": b"200", b"etag": value}))
        assert caught.value.step == "3.6 step 4.3"

    @pytest.mark.parametrize(
        ("name", "step"),
        [
            (b"Etag", "3.6 step 4.1"),
            (b"\xc3\xa9", "3.6 step 4.1"),
            (b":Status", "3.6 step 4.1"),
            (b"e tag", "3.6 step 4.3"),
            (b"", "3.6 step 4.3"),
            (b"e(tag", "3.6 step 4.3"),
            (b"etag\n", "3.6 step 4.3"),
        ],
    )
    def test_a_name_that_is_none_is_refused(self, name, step):
        assert not is_field_name(name)
        with pytest.raises(FieldError) as caught:
            decode_headers(encode({b":status": b"200", name: b"x"}))
        assert caught.value.step == step

    @pytest.mark.parametrize("source", [b"", b"\x80", b"\xa1", b"\xa1\x41a", b"\xa1\x61a\x41b", b"\xbf\xff", b"\xa0\0"])
    def test_what_is_no_map_of_byte_strings_is_refused(self, source):
        with pytest.raises(CborError):
            decode_headers(source)

    def test_an_empty_map_has_nothing(self):
        assert decode_headers(b"\xa0") == ({}, {})


class TestTheShortWay:
    def test_it_takes_what_is_common(self):
        source = encode({b":status": b"304", b"etag": b'"1"', b"content-type": b"x" * 200})
        assert decode_common_headers(source) == ({"etag": '"1"', "content-type": "x" * 200}, b"304")

    @pytest.mark.parametrize(
        "source",
        [
            b"",
            b"\xa0",
            encode({b"etag": b"x"}),  # no status
            encode({b":status": b"200", b"x-own": b"x"}),
            encode({b":status": b"200", b"etag": b""}),
            encode({b":status": b"200", b"etag": b"a\nb"}),
            encode({b":status": b"200", b"etag": b" a"}),
            encode({b":status": b"200"}) + b"\0",
            encode({b":status": b"200"})[:-1],
            b"\xa2" + encode({b":status": b"200"})[1:] * 2,
        ],
    )
    def test_it_leaves_the_rest_to_the_long_way(self, source):
        assert decode_common_headers(source) is None
