"""headgate.bundle.reading.header_cache."""

import pytest

from headgate.bundle.format.cbor import data, encode
from headgate.bundle.reading.header_cache import ResponseHeadCache

PAYLOAD = b"p" * 300


def written(
    etag: bytes = b'"1"', kind: bytes = b"text/html", status: bytes = b"200", payload: bytes = PAYLOAD
) -> bytes:
    headers = encode({b":status": status, b"content-type": kind, b"etag": etag, b"cost%s": b"100%"})
    return b"\x82" + data(headers) + data(payload)


def taught(*sources: bytes) -> ResponseHeadCache:
    familiar = ResponseHeadCache()
    for source in sources:
        familiar.learn(source, 200)
    return familiar


class TestReading:
    def test_what_was_learned_is_taken_again(self):
        source = written()
        headers = {"etag": '"1"', "cost%s": "100%", "content-type": "text/html"}
        found = taught(source).read(source, len(source))
        assert found == (200, headers, len(source) - len(PAYLOAD))
        assert list(found[1]) == list(headers)

    def test_what_is_given_is_the_callers(self):
        source = written()
        familiar = taught(source)
        familiar.read(source, len(source))[1].clear()
        assert familiar.read(source, len(source))[1]["etag"] == '"1"'

    def test_a_value_that_has_not_varied_yet_is_new(self):
        other = written(etag=b'"2"')
        assert taught(written()).read(other, len(other)) is None

    def test_a_value_that_has_varied_may_be_any_other(self):
        familiar = taught(written(), written(etag=b'"2"'))
        source = written(etag=b"%\xe9s")
        assert familiar.read(source, len(source))[1]["etag"] == "%és"
        other = written(kind=b"text/css!")
        assert familiar.read(other, len(other)) is None

    def test_what_has_varied_still_does_after_further_lessons(self):
        familiar = taught(written(), written(etag=b'"2"'), written(etag=b'"2"', kind=b"text/css!"))
        source = written(etag=b'"3"', kind=b"image/png")
        headers = familiar.read(source, len(source))[1]
        assert (headers["etag"], headers["content-type"]) == ('"3"', "image/png")

    @pytest.mark.parametrize("value", [b" 12", b"12 ", b"\t12", b"12\t", b"1\n2", b"1\r2", b"1\x002", b"   "])
    def test_a_value_that_fetch_refuses_is_not_taken(self, value):
        source = written(etag=value)
        assert taught(written(), written(etag=b'"2"')).read(source, len(source)) is None

    def test_another_status_is_another_look(self):
        familiar = taught(written())
        source = written(status=b"404")
        assert familiar.read(source, len(source)) is None
        familiar.learn(source, 404)
        assert familiar.read(source, len(source))[0] == 404
        assert familiar.read(written(), len(written()))[0] == 200

    def test_the_payload_must_fill_the_location(self):
        source = written()
        for length in (len(source) - 1, len(source) + 1):
            assert taught(source).read(source, length) is None
        text = source.replace(data(PAYLOAD), b"\x79\x01\x2c" + PAYLOAD)
        assert taught(source).read(text, len(text)) is None
        long = source.replace(data(PAYLOAD), b"\x5a\0\0\x01\x2c" + PAYLOAD)
        assert taught(source).read(long, len(long)) is None

    def test_a_cut_head_is_not_taken(self):
        source = written()
        for size in range(len(source) - len(PAYLOAD)):
            assert taught(source).read(source[:size], len(source)) is None

    @pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 65_535, 65_536])
    def test_payloads_of_every_length(self, size):
        source = written(payload=b"p" * size)
        assert taught(written()).read(source[:1024], len(source))[2] == len(source) - size


class TestLearning:
    def test_headers_that_are_cut_or_too_many_are_not_learned(self):
        source = written()
        assert taught(source[: -len(data(PAYLOAD)) - 1]).read(source, len(source)) is None
        many = {b"content-type": b"text/html", b":status": b"200"} | {b"x%d" % number: b"" for number in range(31)}
        source = b"\x82" + data(encode(many)) + data(b"")
        assert taught(source).read(source, len(source)) is None

    def test_lessons_come_to_an_end(self):
        sources = [written(etag=b"e" * size) for size in range(1, 600)]
        familiar = taught(*sources)
        taken = [source for source in sources if familiar.read(source, len(source))]
        assert 256 < len(taken) <= 512

    def test_few_looks_that_begin_alike_are_kept(self):
        sources = [written(etag=b"e" * size, kind=b"t" * (23 - size)) for size in range(1, 20)]
        familiar = taught(*sources)
        assert sum(familiar.read(source, len(source)) is not None for source in sources) == 4
