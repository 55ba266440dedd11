"""headgate.bundle.lint_findings."""

from headgate.bundle.lint import lint
from tests.malformed.parts import (
    LOCATIONS,
    MANIFEST,
    PRIMARY,
    RESPONSES,
    array,
    b2,
    draft01,
    entry,
    header_map,
    index,
    response,
    text,
    trailer,
    uint,
)
from tests.malformed.parts import Bundle as Parts


def codes(findings):
    return [finding.code for finding in findings]


def typed(media_type: str, payload: bytes, **more: str) -> bytes:
    fields = {b":status": b"200", b"content-type": media_type.encode()}
    fields |= {name.replace("_", "-").encode(): value.encode() for name, value in more.items()}
    return response(header_map(fields), payload)


def warned(parts: Parts, profile="strict"):
    report = lint(parts.written(), profile=profile)
    assert report.errors == []
    return codes(report.warnings)


def test_literal_array_head_and_version_are_warnings():
    assert warned(draft01()) == ["head-0x84", "version-1"]


def test_fragment_in_the_primary_url_is_a_warning():
    assert warned(Parts(url=text(PRIMARY + "#top"))) == ["primary-url-fragment"]


def test_missing_primary_url_is_a_warning():
    assert warned(Parts(url=text(PRIMARY + "x"))) == ["primary-url-not-in-bundle"]
    assert warned(b2().having(primary=None)) == ["primary-url-missing"]


def test_skipped_sections_are_warnings():
    assert warned(Parts().having(primary=text(PRIMARY))) == ["b1-b2-mixup"]
    assert warned(b2().having(signatures=b"\x82\x80\x80")) == ["b1-b2-mixup"]
    assert warned(Parts().having(junk=b"\x01")) == ["unknown-section"]


def test_relative_urls_are_warnings():
    relative = b2().having(primary=text("/"), manifest=text("m"), index=index({"/": pair(0), "m": pair(1)}))
    assert warned(relative) == ["relative-url"] * 4
    assert lint(relative.written(), base_url=PRIMARY).warnings == []


def test_urls_that_differ_in_encoding_are_warnings():
    first, second = PRIMARY + "a%7Eb", PRIMARY + "a~b"
    entries = {PRIMARY: entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1])}
    parts = Parts().having(index=index(entries | {first: entry(LOCATIONS[0]), second: entry(LOCATIONS[0])}))
    assert warned(parts) == ["near-duplicate-url"]


def test_payloads_that_look_like_another_type_are_warnings():
    rows = [
        ("text/plain", b"  <!DOCTYPE html><p>", ["sniffable"]),
        ("application/octet-stream", b"<script>alert(1)</script>", ["sniffable"]),
        ("text/html", b"<p>" + b"x" * 900 + b"%PDF-1.7", ["sniffable"]),
        ("image/png", b"\xff\xd8\xff\xe0", ["sniffable"]),
        ("text/css", b"\x1f\x8b\x08", ["sniffable"]),
        ("text/html", b"<!doctype html>", []),
        ("image/png", b"\x89PNG\r\n", []),
        ("application/pdf", b"%PDF-1", []),
        ("a/b", b"x", []),
    ]
    for media_type, payload, expected in rows:
        assert warned(Parts().answering(typed(media_type, payload))) == expected, media_type
    assert warned(Parts().answering(typed("text/css", b"\x1f\x8b\x08", content_encoding="gzip"))) == []


def test_headers_that_contradict_the_payload_are_warnings():
    assert warned(Parts().answering(typed("a/b", b"xx", content_length="3"))) == ["content-length"]
    assert warned(Parts().answering(typed("a/b", b"xx", content_length="2"))) == []
    assert warned(Parts().answering(typed("a/b", b"xx", transfer_encoding="chunked"))) == ["hop-by-hop"]


def test_headers_that_contradict_the_index_are_warnings():
    stored = [
        typed("a/b", b"1", variant_key="en", variants="Accept-Language;en;fr"),
        typed("a/b", b"2", variant_key="en"),
    ]
    places = [
        (1, len(stored[0])),
        (1 + len(stored[0]), len(stored[1])),
        (1 + sum(map(len, stored)), len(RESPONSES[1])),
    ]
    entries = {PRIMARY: entry(*places[:2], variants=b"Accept-Language;en;de"), MANIFEST: entry(places[2])}
    parts = Parts().having(index=index(entries), responses=array(*stored, RESPONSES[1]))
    assert warned(parts) == ["variants", "variant-key"]


def test_wrong_trailing_length_is_a_warning():
    assert warned(Parts(trailer=trailer(5))) == ["length"]
    assert warned(Parts(trailer=b"")) == ["length-missing"]
    assert warned(Parts(trailer=trailer(len(Parts().written())) + b"more")) == ["trailing-bytes"]


def test_gaps_and_overlaps_of_responses_are_warnings():
    assert warned(Parts().having(responses=array(*RESPONSES, response()))) == ["responses-count", "unreferenced"]
    first, second = ((offset + 1, length) for offset, length in LOCATIONS)
    long_head = Parts().having(
        responses=b"\x98\x02" + b"".join(RESPONSES), index=index({PRIMARY: entry(first), MANIFEST: entry(second)})
    )
    assert warned(long_head) == ["responses-head"]
    inside = index({PRIMARY: entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1]), PRIMARY + "x": entry((1, 5))})
    assert "overlap" in codes(lint(Parts().having(index=inside).written()).warnings)


def test_invalid_media_types_are_warnings():
    invalid = [b"", b"text", b"text/", b"text/html, text/html", b"a/b; c", b'a/b; c="d', b"\xff/b"]
    valid = [b"a/b", b"text/html;charset=utf-8", b'a/b ; c="d;\\"e" ; f=g', b"a/b;"]
    for value in [*invalid, *valid]:
        parts = Parts().answering(response(header_map({b":status": b"200", b"content-type": value})))
        assert warned(parts) == (["content-type-invalid"] if value in invalid else []), value


def pair(number):
    return array(*map(uint, LOCATIONS[number]))
