"""headgate.bundle.lint."""

import pytest

from headgate.bundle.lint import lint
from tests.malformed import CASES
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


class TestGood:
    @pytest.mark.parametrize("parts", [Parts(), b2()], ids=["b1", "b2"])
    def test_a_good_bundle_has_nothing(self, parts):
        report = lint(parts.written())
        assert (report.errors, report.warnings) == ([], [])

    def test_a_path_too(self, tmp_path):
        (tmp_path / "good.wbn").write_bytes(Parts().written())
        assert lint(tmp_path / "good.wbn").errors == []


class TestErrors:
    def test_everything_is_found_not_the_first_thing(self):
        bad = Parts().having(
            index=index({
                PRIMARY: entry(LOCATIONS[0]),
                MANIFEST: entry(LOCATIONS[1]),
                "relative": entry(LOCATIONS[0]),
                "https://test.example.com/#f": entry(LOCATIONS[0]),
                "https://test.example.com/far": entry((400, 400)),
            }),
            manifest=text("https://test.example.com/#x"),
            critical=array(text("unknown")),
            signatures=b"\x80",
            responses=array(b"\x83" + RESPONSES[0][1:], RESPONSES[1]),
        )  # fmt: skip
        report = lint(bad.written())
        assert sorted(codes(report.errors)) == [
            "critical-unknown",
            "format",
            "format",
            "index-url",
            "index-url",
            "location-out-of-range",
            "response",
        ]
        steps = {finding.step for finding in report.errors}
        assert {"3.3.1 step 4.2", "3.3.1 step 3.1", "3.3.2 step 3", "3.3.4 step 2", "3.4 step 2"} <= steps
        offsets = {finding.step: finding.offset for finding in report.errors}
        assert offsets["3.3.2 step 3"] == bad.at("manifest")

    def test_two_faults_of_one_index(self):
        entries = [(text(MANIFEST), entry(LOCATIONS[1])), (text(PRIMARY), entry(LOCATIONS[0]))]
        bad = Parts().having(index=b"\xa2" + b"".join(key + value for key, value in entries))
        assert codes(lint(bad.written()).errors) == ["not-deterministic"]

    def test_a_missing_manifest_is_a_warning_for_compat(self):
        parts = Parts().having(manifest=None)
        assert codes(lint(parts.written()).errors) == ["section-missing"]
        assert warned(parts, "compat") == ["section-missing"]

    def test_a_type_missing_from_an_empty_payload_is_a_warning_for_compat(self):
        empty = Parts().answering(response(header_map({b":status": b"301", b"location": b"/x"}), b""))
        assert codes(lint(empty.written()).errors) == ["content-type-missing"]
        assert warned(empty, "compat") == ["content-type-missing"]

    def test_the_manifest_must_be_in_the_bundle(self):
        report = lint(Parts().having(manifest=text(PRIMARY + "other")).written())
        assert [(finding.code, finding.step) for finding in report.errors] == [("manifest-not-in-bundle", "3.3.2")]

    def test_a_url_that_is_another_once_parsed(self):
        twice = index({PRIMARY: entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1]), PRIMARY[:-1]: entry(LOCATIONS[0])})
        assert codes(lint(Parts().having(index=twice).written()).errors) == ["duplicate-url"]

    def test_the_other_versions_index_is_named(self):
        mixed = Parts().having(index=index({PRIMARY: array(*map(uint, LOCATIONS[0]))}))
        assert lint(mixed.written()).errors[0].message.endswith("this is b2's index in a b1 bundle")
        mixed = b2().having(index=index({PRIMARY: entry(LOCATIONS[0])}))
        assert lint(mixed.written()).errors[0].message.endswith("this is b1's index in a b2 bundle")

    def test_a_cut_payload(self):
        parts = Parts()
        report = lint(parts.written()[: parts.at("trailer") - 1])
        assert codes(report.errors) == ["response-cut"]

    @pytest.mark.parametrize("content", [b"", b"no bundle", b"\x84\x48\xf0\x9f\x96\x8b\xf0\x9f\x93\xa6\xff"])
    def test_what_is_no_bundle(self, content):
        assert len(lint(content).errors) == 1


class TestWarnings:
    def test_the_head_and_version_of_the_letter(self):
        assert warned(draft01()) == ["head-0x84", "version-1"]

    def test_a_fragment_in_the_primary_url(self):
        assert warned(Parts(url=text(PRIMARY + "#top"))) == ["primary-url-fragment"]

    def test_a_primary_url_that_is_missing(self):
        assert warned(Parts(url=text(PRIMARY + "x"))) == ["primary-url-not-in-bundle"]
        assert warned(b2().having(primary=None)) == ["primary-url-missing"]

    def test_sections_that_are_stepped_over(self):
        assert warned(Parts().having(primary=text(PRIMARY))) == ["b1-b2-mixup"]
        assert warned(b2().having(signatures=b"\x82\x80\x80")) == ["b1-b2-mixup"]
        assert warned(Parts().having(junk=b"\x01")) == ["unknown-section"]

    def test_urls_that_differ_in_encoding_only(self):
        first, second = PRIMARY + "a%7Eb", PRIMARY + "a~b"
        entries = {PRIMARY: entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1])}
        parts = Parts().having(index=index(entries | {first: entry(LOCATIONS[0]), second: entry(LOCATIONS[0])}))
        assert warned(parts) == ["near-duplicate-url"]

    @pytest.mark.parametrize(
        ("media_type", "payload"),
        [
            ("text/plain", b"  <!DOCTYPE html><p>"),
            ("application/octet-stream", b"<script>alert(1)</script>"),
            ("text/html", b"<p>" + b"x" * 900 + b"%PDF-1.7"),
            ("image/png", b"\xff\xd8\xff\xe0"),
            ("text/css", b"\x1f\x8b\x08"),
        ],
    )
    def test_a_payload_that_may_be_taken_for_something_else(self, media_type, payload):
        assert warned(Parts().answering(typed(media_type, payload))) == ["sniffable"]

    @pytest.mark.parametrize(
        ("media_type", "payload"),
        [
            ("text/html", b"<!doctype html>"),
            ("image/png", b"\x89PNG\r\n"),
            ("application/pdf", b"%PDF-1"),
            ("a/b", b"x"),
        ],
    )
    def test_a_payload_that_is_what_it_says(self, media_type, payload):
        assert warned(Parts().answering(typed(media_type, payload))) == []

    def test_a_coding_is_no_disguise(self):
        assert warned(Parts().answering(typed("text/css", b"\x1f\x8b\x08", content_encoding="gzip"))) == []

    def test_headers_that_do_not_fit(self):
        assert warned(Parts().answering(typed("a/b", b"xx", content_length="3"))) == ["content-length"]
        assert warned(Parts().answering(typed("a/b", b"xx", transfer_encoding="chunked"))) == ["hop-by-hop"]

    def test_variants_that_do_not_fit(self):
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

    def test_the_layout(self):
        assert warned(Parts(trailer=trailer(5))) == ["length"]
        assert warned(Parts(trailer=b"")) == ["length-missing"]
        assert warned(Parts(trailer=trailer(len(Parts().written())) + b"more")) == ["trailing-bytes"]
        gap = Parts().having(responses=array(*RESPONSES, response()))
        assert warned(gap) == ["responses-count", "unreferenced"]
        inside = index({PRIMARY: entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1]), PRIMARY + "x": entry((1, 5))})
        report = lint(Parts().having(index=inside).written())
        assert "overlap" in codes(report.warnings)
        assert warned(Parts().having(responses=b"\x98\x02" + b"".join(RESPONSES)).having(**shifted())) == [
            "responses-head"
        ]


def shifted():
    """Give an index for responses behind a head of two bytes."""
    first, second = ((offset + 1, length) for offset, length in LOCATIONS)
    return {"index": index({PRIMARY: entry(first), MANIFEST: entry(second)})}


class TestMediaTypes:
    def bundle(self, media_type):
        return Parts().answering(response(header_map({b":status": b"200", b"content-type": media_type})))

    @pytest.mark.parametrize(
        "value", [b"", b"text", b"text/", b"text/html, text/html", b"a/b; c", b'a/b; c="d', b"\xff/b"]
    )
    def test_what_is_no_media_type(self, value):
        assert warned(self.bundle(value)) == ["content-type-invalid"]

    @pytest.mark.parametrize("value", [b"a/b", b"text/html;charset=utf-8", b'a/b ; c="d;\\"e" ; f=g', b"a/b;"])
    def test_what_is_one(self, value):
        assert warned(self.bundle(value)) == []


class TestAnyBytes:
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_every_malformed_bundle_has_an_error_and_every_good_one_has_none(self, case):
        report = lint(case.content)
        if case.from_end or case.expected == "either":
            return
        if case.expected == "ok":
            # What a reader takes and the document forbids: 3.3.2 wants the manifest in the bundle.
            assert set(codes(report.errors)) <= {"manifest-not-in-bundle"}
        else:
            assert report.errors
            assert any(case.step in (finding.step or "") for finding in report.errors) or not case.step

    def test_every_prefix(self):
        content = Parts().written()
        for end in range(len(content) - 9):
            assert lint(content[:end]).errors
