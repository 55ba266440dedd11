"""headgate.bundle.lint: that it goes on where a reader stops, each part of a bundle on its own."""

from dataclasses import replace

import pytest

from headgate.bundle.lint import lint
from tests.malformed.parts import (
    HEADERS,
    LOCATIONS,
    MANIFEST,
    PRIMARY,
    RESPONSES,
    Bundle,
    array,
    b2,
    data,
    draft01,
    entry,
    head,
    header_map,
    index,
    pairs,
    response,
    text,
    uint,
)

GOOD = Bundle()
FAR = (400, 400)
BROKEN = RESPONSES[0].replace(b"200", b"2xx")
UNTYPED = response(header_map({b":status": b"200"}), b"<!doctype html>")


def errors(parts, **options):
    return [(finding.code, finding.offset) for finding in lint(parts.written(), **options).errors]


def codes(parts, **options):
    return sorted(code for code, _ in errors(parts, **options))


def steps(parts):
    return {finding.step for finding in lint(parts.written()).errors}


def warned(parts, **options):
    return sorted(finding.code for finding in lint(parts.written(), **options).warnings)


class TestIndex:
    def test_a_longer_integer_hides_nothing_behind_it(self):
        loose = array(data(b""), uint(LOCATIONS[0][0], 1), uint(LOCATIONS[0][1]))
        content = pairs(
            (text(MANIFEST), entry(LOCATIONS[1])),
            (text(PRIMARY), loose),
            (text(PRIMARY + "#top"), entry(LOCATIONS[0])),
            (text(PRIMARY + "far"), entry(FAR)),
            (text(PRIMARY + "last/of/all/of/them"), array(data(b""), uint(1, 8), uint(2))),
        )
        bad = GOOD.having(index=content, responses=array(RESPONSES[0], b"\x83" + RESPONSES[1][1:]))
        at = bad.at("index")
        assert codes(bad) == [
            "index-url", "location-mismatch", "location-out-of-range", "not-deterministic", "not-deterministic",
            "not-deterministic", "not-deterministic", "response",
        ]  # fmt: skip
        found = errors(bad)
        longer = at + 1 + len(text(MANIFEST) + entry(LOCATIONS[1]) + text(PRIMARY)) + 2
        assert ("not-deterministic", longer) in found
        assert ("not-deterministic", longer - 2 - len(text(PRIMARY))) in found
        assert ("location-out-of-range", at + content.index(text(PRIMARY + "far"))) in found
        assert ("response", bad.at("responses") + LOCATIONS[1][0]) in found

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (head(3, len(PRIMARY), 8) + PRIMARY.encode(), entry(LOCATIONS[0])),
            (b"\x7f" + text(PRIMARY[:9]) + text(PRIMARY[9:]) + b"\xff", entry(LOCATIONS[0])),
            (text(PRIMARY), b"\x9f" + entry(LOCATIONS[0])[1:] + b"\xff"),
            (text(PRIMARY), entry(LOCATIONS[0]).replace(b"\x83\x40", b"\x83\x5f\xff")),
            (text(PRIMARY), entry(LOCATIONS[0]).replace(b"\x83", b"\x98\x03")),
        ],
        ids=["key", "key in chunks", "endless value", "Variants in chunks", "value"],
    )
    def test_whatever_is_longer_than_it_need_be(self, key, value):
        """One fault, and the response behind the entry is found: it is bad, too."""
        content = b"\xa2" + key + value + text(MANIFEST) + entry(LOCATIONS[1])
        bad = GOOD.having(index=content, responses=array(BROKEN, RESPONSES[1]))
        assert codes(bad) == ["not-deterministic", "status"]

    def test_an_endless_map(self):
        content = b"\xbf" + GOOD.sections["index"][1:] + b"\xff"
        assert errors(GOOD.having(index=content)) == [("not-deterministic", GOOD.at("index"))]

    def test_an_entry_of_the_wrong_kind_hides_no_other(self):
        content = pairs(
            (uint(7), entry(LOCATIONS[0])),
            (text(PRIMARY), text("nowhere")),
            (text(MANIFEST), entry(FAR)),
        )
        assert codes(GOOD.having(index=content)) == ["format", "format", "location-out-of-range"]

    def test_url_and_value_of_one_entry(self):
        content = index({PRIMARY + "#x": entry(FAR), MANIFEST: entry(LOCATIONS[1])})
        assert codes(GOOD.having(index=content)) == ["index-url", "location-out-of-range"]

    def test_every_location_of_one_entry(self):
        content = index(
            {PRIMARY: entry(FAR, LOCATIONS[0], FAR, variants=b"Accept;a;b;c"), MANIFEST: entry(LOCATIONS[1])}
        )
        assert codes(GOOD.having(index=content)) == ["location-out-of-range"] * 2

    def test_the_response_of_an_entry_that_is_refused(self):
        content = index({"relative": entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1])})
        bad = GOOD.having(index=content, responses=array(BROKEN, RESPONSES[1]))
        report = lint(bad.written())
        assert any(finding.message.startswith("relative: the status") for finding in report.errors)

    def test_bytes_behind_it(self):
        assert codes(GOOD.having(index=GOOD.sections["index"] + b"\0")) == ["trailing-bytes"]

    def test_responses_of_an_index_that_ends_too_soon(self):
        """What is in the index is told by its URL, the rest by where it is."""
        content = GOOD.sections["index"][:-3]
        bad = GOOD.having(index=content, responses=array(b"\x83" + RESPONSES[0][1:], b"\x83" + RESPONSES[1][1:]))
        told = [finding.message for finding in lint(bad.written()).errors if finding.step == "3.4 step 2"]
        at = bad.at("responses") + LOCATIONS[1][0]
        assert [message.partition(": the response begins")[0] for message in told] == [
            PRIMARY,
            f"the response at byte {at}",
        ]

    def test_there_is_none(self):
        bad = GOOD.having(index=None, responses=array(UNTYPED))
        assert codes(bad) == ["content-type-missing", "section-missing"]
        assert "sniffable" in warned(bad)


class TestHeaders:
    def test_every_bad_pair(self):
        headers = pairs(
            (data(b":status"), data(b"20")),
            (data(b"X"), data(b"x")),
            (data(b"a b"), data(b" y")),
            (data(b":path"), data(b"/")),
            (data(b"x"), text("x")),
            (data(b"location"), data(b"a\nb")),
            (data(b"content-type"), data(b"text/plain ")),
            (text("late"), data(b"z")),
            (head(2, 5, 2) + b"later", data(b"z")),
        )
        bad = GOOD.answering(response(headers), len(response(headers)) + 1, b"\0")
        at = bad.at("responses") + 1 + len(RESPONSES[1]) + 3
        assert codes(bad) == [
            *["header-field"] * 5, "location-mismatch", *["not-deterministic"] * 4, "response", "response",
            "status", "status",
        ]  # fmt: skip
        assert {
            "3.4 step 5, 3.5.1 step 2",
            "3.4 step 5, 3.5.1 step 5",
            "3.4 step 6, 3.6 step 4.1",
            "3.4 step 6, 3.6 step 4.3",
            "3.4 step 7",
            "3.4 step 8",
            "3.4 step 11",
        } <= steps(bad)
        assert ("header-field", at + headers.index(data(b"X"))) in errors(bad)
        assert ("header-field", at + headers.index(data(b"location"))) in errors(bad)

    def test_a_name_that_comes_twice(self):
        status, kind = (data(b":status"), data(b"200")), (data(b"content-type"), data(b"a/b"))
        bad = GOOD.answering(response(pairs(status, kind, kind)))
        told = lint(bad.written()).errors
        assert [finding.code for finding in told] == ["not-deterministic"]
        assert "appears twice" in told[0].message

    def test_no_status_and_no_content_type(self):
        assert codes(GOOD.answering(response(header_map({b"x": b"y"})))) == ["content-type-missing", "status"]

    def test_nothing_is_missing_that_may_stand_in_what_cannot_be_read(self):
        headers = b"\xa3" + data(b"x") + data(b"\n") + head(2, 100) + b"z"
        assert codes(GOOD.answering(response(headers))) == ["header-field", "response"]

    def test_a_refused_response_is_warned_of_too(self):
        assert codes(GOOD.answering(UNTYPED)) == ["content-type-missing"]
        assert warned(GOOD.answering(UNTYPED)) == ["sniffable"]
        typed = header_map({b"content-type": b"text/plain", b"connection": b"close", b"content-length": b"1"})
        bad = GOOD.answering(response(typed, b"<html>"))
        assert codes(bad) == ["status"]
        assert warned(bad) == ["content-length", "hop-by-hop", "sniffable"]

    @pytest.mark.parametrize("first", [b"\x83", b"\x98\x02", b"\x9f"])
    def test_another_array(self, first):
        bad = GOOD.answering(first + UNTYPED[1:])
        assert codes(bad) == ["content-type-missing", "response"]
        assert warned(bad) == ["sniffable"]

    def test_longer_heads_of_headers_and_payload(self):
        headers = header_map({b":status": b"2000", b"content-type": b"text/plain"})
        bad = GOOD.answering(b"\x82" + head(2, len(headers), 4) + headers + head(2, 6, 2) + b"<html>")
        assert codes(bad) == ["not-deterministic", "not-deterministic", "status"]
        assert warned(bad) == ["sniffable"]

    def test_a_payload_that_is_no_byte_string(self):
        bare = header_map({b":status": b"200"})
        assert codes(GOOD.answering(b"\x82" + data(bare) + text("x"))) == ["content-type-missing", "response"]

    def test_too_many_headers(self):
        headers = HEADERS + b"\0" * 524_288
        bad = GOOD.answering(b"\x82" + data(headers) + text("x"))
        assert steps(bad) == {"3.4 step 4", "3.4 step 10, 3.5.2 step 2"}

    def test_a_type_missing_from_an_empty_payload_stays_a_warning_for_compat(self):
        bad = GOOD.answering(response(header_map({b":status": b"30"}), b""))
        assert codes(bad) == ["content-type-missing", "status"]
        assert codes(bad, profile="compat") == ["status"]
        assert warned(bad, profile="compat") == ["content-type-missing"]


class TestTable:
    def damaged(self, **changes):
        """Give a bundle whose index and manifest are bad besides."""
        bad = GOOD.having(index=index({PRIMARY: entry(FAR), MANIFEST: entry(LOCATIONS[1])}), manifest=text("no"))
        return replace(bad, **changes)

    BESIDES = ("format", "location-out-of-range")

    @pytest.mark.parametrize("wrong", [b"\x82", b"\x84", b"\xa3", b"\x98\x03", b"\x9f"])
    def test_a_wrong_head_of_the_sections(self, wrong):
        code = "not-deterministic" if wrong in (b"\x98\x03", b"\x9f") else "section-count"
        assert codes(self.damaged(sections_head=wrong)) == sorted([*self.BESIDES, code])

    def test_a_section_twice(self):
        bad = self.damaged()
        names = [*bad.sections.items(), ("manifest", text("#"))]
        names.insert(2, names.pop())
        lengths = array(*(item for name, content in names for item in (text(name), uint(len(content)))))
        sections = {"index": names[0][1], "manifest": names[1][1] + names[2][1], "responses": names[3][1]}
        twice = replace(bad, sections=sections, lengths=lengths, sections_head=b"\x84")
        assert codes(twice) == sorted([*self.BESIDES, "duplicate-section", "format"])

    def test_responses_that_are_not_last(self):
        bad = self.damaged()
        moved = bad.arranged(*((name, bad.sections[name]) for name in ("index", "responses", "manifest")))
        assert codes(moved) == sorted([*self.BESIDES, "responses-not-last"])

    def test_no_responses(self):
        none = self.damaged().having(responses=None)
        assert codes(none) == ["format", "responses-not-last"]

    def test_longer_integers_in_the_lengths(self):
        bad = self.damaged()
        items = [item for name, content in bad.sections.items() for item in (text(name), uint(len(content), 4))]
        loose = replace(bad, lengths=array(*items))
        assert codes(loose) == sorted([*self.BESIDES, *["not-deterministic"] * 3])

    def test_a_longer_head_of_the_lengths(self):
        bad = self.damaged()
        loose = replace(bad, lengths_head=head(2, len(bad.section_lengths()), 4))
        assert codes(loose) == sorted([*self.BESIDES, "not-deterministic"])

    def test_more_lengths_than_are_taken(self):
        bad = self.damaged().arranged(("x" * 9_000, b"\0"), *self.damaged().sections.items())
        assert codes(bad) == sorted([*self.BESIDES, "format"])

    def test_a_length_that_is_none(self):
        bad = GOOD.having(index=index({"relative": entry(FAR)}))
        lengths = array(text("index"), uint(len(bad.sections["index"])), text("manifest"), text("5"))
        assert steps(replace(bad, lengths=lengths)) == {"3.3 step 11, 3.5.1 step 5", "3.3.1 step 4.2"}

    def test_a_critical_section_names_each_that_is_unknown(self):
        bad = GOOD.having(critical=array(text("one"), text("index"), text("two"), uint(1)))
        assert codes(bad) == ["critical-unknown", "critical-unknown", "format"]

    def test_signatures_entry_by_entry(self):
        certificate = pairs((text("cert"), text("no")), (text("a"), b"\x18\x01"))
        subset = pairs((text("sig"), data(b"")), (text("signed"), uint(1)), (text("what"), uint(1)))
        bad = GOOD.having(signatures=array(array(certificate, uint(1), pairs()), array(subset), uint(1)))
        assert codes(bad) == [*["format"] * 7, *["not-deterministic"] * 3]

    def test_a_section_that_is_cut(self):
        bad = self.damaged()
        whole = bad.written()
        cut = whole[: bad.at("manifest") - 4]
        assert sorted({finding.step for finding in lint(cut).errors}) == [
            "3.3 step 22.4", "3.3 step 22.5", "3.3.1 step 3.1",
        ]  # fmt: skip


class TestLead:
    BESIDES = "location-out-of-range"

    def damaged(self, bundle=GOOD, **changes):
        bad = bundle.having(index=index({PRIMARY: bundle.value(FAR), MANIFEST: bundle.value(LOCATIONS[1])}))
        return replace(bad, **changes)

    @pytest.mark.parametrize(
        "bundle",
        [(GOOD, b"\x85"), (draft01(), b"\x85"), (b2(), b"\x84"), (b2(), b"\x86")],
        ids=lambda pair: pair[1].hex(),
    )
    def test_the_head_of_the_other_layout(self, bundle):
        good, first = bundle
        bad = self.damaged(good, array=first)
        bad = replace(bad, sections={**bad.sections, "index": self.damaged(good).sections["index"]})
        assert codes(bad) == ["b1-b2-mixup", self.BESIDES]

    def test_the_layout_of_the_other_head(self):
        """0x85 and b1 over b2's layout, 0x86 and b2 over b1's."""
        assert codes(self.damaged(array=b"\x85", url=b"")) == ["b1-b2-mixup", self.BESIDES]
        mixed = self.damaged(b2())
        assert codes(replace(mixed, array=b"\x86", url=text(PRIMARY))) == ["b1-b2-mixup", self.BESIDES]
        assert codes(replace(mixed, url=text(PRIMARY))) == ["b1-b2-mixup", self.BESIDES]
        assert codes(self.damaged(url=b"")) == ["format", self.BESIDES]

    @pytest.mark.parametrize("first", [b"\x83", b"\x87", b"\x98\x06", b"\x9f"])
    def test_another_array(self, first):
        assert codes(self.damaged(array=first)) == [self.BESIDES, "not-a-bundle"]

    def test_a_longer_magic_and_version(self):
        magic = b"\x58\x08" + "🌐📦".encode()
        assert codes(self.damaged(magic=magic)) == [self.BESIDES, "not-a-bundle"]
        assert codes(self.damaged(version=b"\x58\x04b1\0\0")) == [self.BESIDES, "version"]
        assert codes(self.damaged(version=b"\x64b1\0\0")) == [self.BESIDES, "version"]

    def test_a_version_that_nobody_knows_ends_it(self):
        assert codes(self.damaged(version=b"\x44b9\0\0", url=text("no"))) == ["format", "version"]

    def test_a_bad_primary_url(self):
        assert codes(self.damaged(url=text("no"))) == ["format", self.BESIDES]
        assert codes(self.damaged(url=data(PRIMARY.encode()))) == ["format", self.BESIDES]
        assert codes(self.damaged(url=head(3, len(PRIMARY), 4) + PRIMARY.encode())) == [
            self.BESIDES,
            "not-deterministic",
        ]
        assert "primary-url-missing" not in warned(self.damaged(url=text("no")))

    def test_an_integrity_block_that_is_refused(self):
        block = b"\x84" + data("🖋📦".encode()) + data(b"9b\0\0") + b"\xa0\x80"
        bad = self.damaged()
        found = lint(block + bad.written()).errors
        assert [finding.code for finding in found] == ["integrity-block", self.BESIDES]
        assert found[1].offset == len(block) + bad.at("index") + 1

    def test_from_the_end(self):
        bad = self.damaged()
        found = lint(b"MZ" * 7 + bad.written(), from_end=True).errors
        assert [(finding.code, finding.offset) for finding in found] == [(self.BESIDES, 14 + bad.at("index") + 1)]
        assert [finding.step for finding in lint(b"", from_end=True).errors] == ["3.3.6 step 1"]


class TestMixups:
    @pytest.mark.parametrize(
        ("mixed", "words"),
        [
            (
                GOOD.having(index=index({PRIMARY: array(*map(uint, LOCATIONS[0])), MANIFEST: entry(LOCATIONS[1])})),
                "b2's",
            ),
            (b2().having(index=index({PRIMARY: entry(LOCATIONS[0]), MANIFEST: b2().value(LOCATIONS[1])})), "b1's"),
        ],
        ids=["b1", "b2"],
    )
    def test_the_other_index_is_read_all_the_same(self, mixed, words):
        bad = mixed.having(responses=array(BROKEN, RESPONSES[1]))
        assert codes(bad) == ["b1-b2-mixup", "status"]
        assert words in next(finding.message for finding in lint(bad.written()).errors if finding.code == "b1-b2-mixup")


class TestRelative:
    LOCATION = array(*map(uint, LOCATIONS[0]))

    def bundle(self, **more):
        urls = {"a": self.LOCATION, "b/c": self.LOCATION, MANIFEST: array(*map(uint, LOCATIONS[1]))}
        return b2().having(index=index(urls), primary=None, **more)

    def test_relative_urls_and_nothing_to_resolve_them_against(self):
        assert errors(self.bundle()) == []
        assert warned(self.bundle()) == ["primary-url-missing", "relative-url", "relative-url"]

    def test_a_relative_primary_url_and_manifest(self):
        relative = self.bundle().having(primary=text("a"), manifest=text("b/c"))
        assert errors(relative) == []
        assert warned(relative) == ["relative-url"] * 4
        places = {finding.offset for finding in lint(relative.written()).warnings}
        assert places == {None, relative.at("primary"), relative.at("manifest")}

    def test_something_to_resolve_them_against(self):
        assert warned(self.bundle(), base_url=PRIMARY) == ["primary-url-missing"]
        assert warned(self.bundle().having(primary=text(PRIMARY + "a"))) == []

    def test_a_primary_url_where_b1_has_it_resolves_them_too(self):
        misplaced = replace(self.bundle(), url=text(PRIMARY + "a"))
        assert codes(misplaced) == ["b1-b2-mixup"]
        assert "relative-url" not in warned(misplaced)

    def test_b1_has_none(self):
        bad = GOOD.having(index=index({"a": entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1])}))
        assert codes(bad, base_url=PRIMARY) == ["index-url"]
