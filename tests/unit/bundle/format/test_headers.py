"""headgate.bundle.format.headers: header maps by 3.4 (steps 4 to 9) and 3.6 of bundled-exchanges-01."""

from http import HTTPStatus

import pytest

from headgate.bundle.format.cbor import encode
from headgate.bundle.format.headers import decode_headers, encode_headers, join_header_map
from headgate.errors import ConfigurationError

STATUS = {b":status": b"200"}


class TestDecoding:
    def test_status_is_separated_from_headers(self):
        source = encode({b":status": b"304", b"content-type": b"text/html", b"x-own": b"caf\xe9", b"etag": b""})
        fields = {"etag": "", "x-own": "caf\xe9", "content-type": "text/html"}
        assert decode_headers(source) == (304, fields)


def written(status, fields):
    return join_header_map(encode_headers(status, fields))


def encoded(fields):
    return decode_headers(join_header_map(encode_headers(200, fields)))[1]


class TestEncoding:
    def test_keys_are_sorted_with_the_status_among_them(self):
        """RFC 8949, 4.2.1: "sorted in the bytewise lexicographic order of their deterministic encodings"."""
        fields = {"X-Content-Type-Options": "nosniff", "ETag": '"1"', "content-type": "text/html", "Age": "1"}
        assert written(200, fields) == encode(
            {
                b"age": b"1",
                b"etag": b'"1"',
                b":status": b"200",
                b"content-type": b"text/html",
                b"x-content-type-options": b"nosniff",
            }
        )

    def test_empty_values_are_left_out_when_joined(self):
        """3.6 step 4.3: a value that ends in a space "doesn't satisfy the requirements for a header in [FETCH]"."""
        for values, joined in ((["", ""], ""), (["", "a"], "a"), (["a", " "], "a"), (["a", "", "b"], "a, b")):
            pairs = [("vary", value) for value in values]
            assert encoded(pairs) == {"vary": joined}, values
            assert decode_headers(written(200, pairs)) == (200, {"vary": joined}), values

    def test_two_cookies_are_refused(self):
        """3.6 step 4.4, note: "This means that a response cannot set more than one cookie"."""
        assert encoded({"Set-Cookie": "a=1"}) == {"set-cookie": "a=1"}
        for second in ("set-cookie", "Set-Cookie"):
            with pytest.raises(ConfigurationError, match="more than one cookie"):
                encoded([("Set-Cookie", "a=1"), (second, "b=2")])

    def test_whitespace_around_values_is_removed(self):
        for value in (" a ", "\ta\r\n", "\n a", "", " \t ", "a\tb", "é", "\x80\xff", "a b"):
            assert encoded({"x": value}) == {"x": value.strip()}, value
            assert decode_headers(written(200, {"x": value})) == (200, {"x": value.strip()}), value

    def test_control_characters_in_values_are_refused(self):
        for value in ("a\nb", "a\rb", "a\0b", "a\x01b", "a\x7fb", "\x1f"):
            with pytest.raises(ConfigurationError, match="of x has a control character in it"):
                encoded({"x": value})

    def test_value_outside_latin_1_is_refused(self):
        with pytest.raises(ConfigurationError, match="'雪' of x is not Latin-1"):
            encoded({"x": "雪"})

    def test_names_other_than_tokens_are_refused(self):
        for name in ("", " ", "a b", "a:", "é", "a\n", "(a)", "a\0", "\u212a"):
            for _ in range(2):  # a refused name is not cached as valid
                with pytest.raises(ConfigurationError, match="is not a header name"):
                    encode_headers(200, {name: "x"})

    def test_pseudo_headers_are_refused(self):
        """3.4 step 7: "If "pseudos" does not have a key named ':status' or its size isn't 1, return an error." """
        for name in (":status", ":method", ":"):
            with pytest.raises(ConfigurationError, match="is a pseudo-header"):
                encoded({name: "200"})

    def test_status_is_an_integer_of_three_digits(self):
        """3.4 step 8: "If "pseudos[':status']" isn't exactly 3 ASCII decimal digits, return an error." """
        for status in (100, 999, HTTPStatus.NOT_FOUND):
            assert decode_headers(written(status, {})) == (status, {})
        for status in (99, 1000, 0, -200, "200", 200.0, None):
            with pytest.raises(ConfigurationError, match="is not an integer of three digits"):
                encode_headers(status, {})

    def test_maps_that_readers_refuse_for_their_size_are_refused(self):
        """3.4 step 4: "If "headerLength" is 524288 (512*1024) or greater, return an error." """
        frame = len(written(200, {"x": "v" * 100_000})) - 100_000
        assert len(written(200, {"x": "v" * (524_287 - frame)})) == 524_287
        with pytest.raises(ConfigurationError, match="the headers take 524288 bytes"):
            written(200, {"x": "v" * (524_288 - frame)})
