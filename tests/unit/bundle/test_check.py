"""headgate.bundle.check: every error of a bundle by part, and its warnings."""

from headgate.bundle import check
from headgate.bundle.check import check_bundle
from tests.malformed import CASES
from tests.malformed.parts import (
    LOCATIONS,
    MANIFEST,
    PRIMARY,
    RESPONSES,
    array,
    b2,
    entry,
    head,
    header_map,
    index,
    response,
    text,
    uint,
)
from tests.malformed.parts import Bundle as Parts


def codes(found):
    return [finding.code for finding in found]


class TestErrors:
    def test_valid_bundles_have_no_findings(self, tmp_path):
        (tmp_path / "good.wbn").write_bytes(Parts().written())
        for source in (Parts().written(), b2().written(), tmp_path / "good.wbn"):
            report = check_bundle(source)
            assert (report.errors, report.warnings) == ([], [])

    def test_each_part_gives_one_error(self):
        bad = Parts().having(
            manifest=text("https://test.example.com/#x"),
            critical=array(text("unknown")),
            signatures=b"\x80",
            responses=array(b"\x83" + RESPONSES[0][1:], RESPONSES[1].replace(b"200", b"2xx")),
        )
        report = check_bundle(bad.written())
        assert [(finding.code, finding.step) for finding in report.errors] == [
            ("critical-unknown", "3.3.4 step 2"),
            ("format", "3.3.2 step 3"),
            ("format", "3.3.3 step 1, 3.5.1 step 5"),
            ("response", "3.4 step 2"),
            ("status", "3.4 step 8"),
        ]
        assert report.errors[1].offset == bad.at("manifest")
        assert report.errors[3].message == f"{PRIMARY}: the response begins with 0x83, not 0x82"

    def test_offsets_count_from_the_first_byte_of_the_file(self):
        bad = Parts().having(responses=array(b"\x83" + RESPONSES[0][1:], RESPONSES[1]))
        (error,) = check_bundle(b"MZ" * 7 + bad.written(), from_end=True).errors
        assert error.offset == 14 + bad.at("responses") + 1

    def test_missing_manifest_is_a_warning_for_compat(self):
        content = Parts().having(manifest=None).written()
        assert codes(check_bundle(content).errors) == ["section-missing"]
        report = check_bundle(content, profile="compat")
        assert (report.errors, codes(report.warnings)) == ([], ["compat"])

    def test_missing_type_of_an_empty_payload_is_a_warning_for_compat(self):
        content = Parts().answering(response(header_map({b":status": b"301", b"location": b"/x"}), b"")).written()
        assert codes(check_bundle(content).errors) == ["content-type-missing"]
        report = check_bundle(content, profile="compat")
        assert (report.errors, codes(report.warnings)) == ([], ["compat"])

    def test_manifest_outside_of_the_bundle_is_an_error(self):
        report = check_bundle(Parts().having(manifest=text(PRIMARY + "other")).written())
        assert [(finding.code, finding.step) for finding in report.errors] == [("manifest-not-in-bundle", "3.3.2")]

    def test_mixed_versions_are_named(self):
        mixed = Parts().having(index=index({PRIMARY: array(*map(uint, LOCATIONS[0]))}))
        (error,) = check_bundle(mixed.written()).errors
        assert "the form of b2" in error.message
        mixed = b2().having(index=index({PRIMARY: entry(LOCATIONS[0])}))
        (error,) = check_bundle(mixed.written()).errors
        assert "the form of b1" in error.message

    def test_errors_of_an_index_before_a_malformed_primary_url_are_found(self):
        bad = b2().having(primary=uint(1), index=b"\xf6")
        assert [error.offset for error in check_bundle(bad.written()).errors] == [bad.at("primary"), bad.at("index")]

    def test_cut_payload_has_an_error(self):
        parts = Parts()
        assert codes(check_bundle(parts.written()[: parts.at("trailer") - 1]).errors) == ["response-cut"]

    def test_malformed_bundles_have_the_error_of_their_step(self):
        for case in CASES:
            if case.from_end or case.expected == "either":
                continue
            errors = check_bundle(case.content).errors
            if case.expected == "ok":
                # Readers accept what 3.3.2 forbids: a manifest outside of the bundle.
                assert set(codes(errors)) <= {"manifest-not-in-bundle"}, case.name
            else:
                assert errors, case.name
                assert not case.step or any(case.step in (error.step or "") for error in errors), case.name

    def test_every_prefix_has_an_error(self):
        content = Parts().written()
        for end in range(len(content) - 9):
            assert check_bundle(content[:end]).errors, end


class TestWarnings:
    """What readers accept and clients may trip over: no warning has more than one code, and there are six."""

    def warned(self, content, **options):
        report = check_bundle(content, **options)
        assert report.errors == []
        return [(finding.code, finding.step) for finding in report.warnings]

    def test_skipped_sections_are_named(self):
        assert (
            self.warned(Parts().having(primary=b"\0", other=b"\0").written())
            == [("unknown-section", "3.3 step 22.1")] * 2
        )

    def test_primary_url_that_clients_cannot_open_is_named(self):
        for parts, fault in [
            (b2().having(primary=None), "there is no primary URL"),
            (Parts(url=text(f"{PRIMARY}x")), f"the primary URL {PRIMARY}x is not in the bundle"),
            (Parts(url=text(f"{PRIMARY}#x")), "has a fragment"),
        ]:
            (warning,) = check_bundle(parts.written()).warnings
            assert (warning.code, fault in warning.message) == ("primary-url", True)

    def test_length_at_the_end_is_compared(self):
        content = Parts().written()
        assert self.warned(content[:-9]) == [("length", "3.3.6")]
        assert self.warned(content[:-1] + b"\0") == [("length", "3.3.6")]
        assert self.warned(content + b"more") == [("length", "3.1")]

    def test_gaps_and_overlaps_of_responses_are_named(self):
        gap = Parts().having(responses=array(*RESPONSES, b"\0\0"))
        assert self.warned(gap.written()) == [("responses-layout", "3.1"), ("responses-layout", "3.3.5")]
        one = Parts().having(responses=b"\x81" + RESPONSES[0] + RESPONSES[1])
        assert self.warned(one.written()) == [("responses-layout", "3.1")]
        outer = response(header_map({b":status": b"200", b"content-type": b"a/b"}), RESPONSES[0])
        inner = (1 + len(outer) - len(RESPONSES[0]), len(RESPONSES[0]))
        nested = Parts().having(
            index=index(
                {
                    PRIMARY: entry((1, len(outer))),
                    f"{PRIMARY}in": entry(inner),
                    MANIFEST: entry((1 + len(outer), len(RESPONSES[1]))),
                }
            ),
            responses=array(outer, RESPONSES[1]),
        )
        assert ("responses-layout", "3.3.5") in self.warned(nested.written())


class TestLimits:
    def test_sections_are_limited(self):
        report = check_bundle(Parts().written(), max_section=40)
        assert "exceeds the limit of 40" in report.errors[0].message

    def test_findings_of_one_code_are_counted_beyond_the_limit(self, monkeypatch):
        monkeypatch.setattr(check, "MAX_PER_CODE", 5)
        for count, listed in ((5, 5), (8, 6)):
            broken = [RESPONSES[0].replace(b"200", b"2xx")] * count
            places = [(1 + len(RESPONSES[0]) * number, len(RESPONSES[0])) for number in range(count)]
            entries = {f"{PRIMARY}{number}": entry(place) for number, place in enumerate(places)}
            report = check_bundle(
                Parts().having(index=index(entries), manifest=None, responses=array(*broken)).written()
            )
            found = [error for error in report.errors if error.code == "status"]
            assert len(found) == min(count, 5)
            more = [one for one in report.warnings if one.code == "status"]
            assert len(more) == listed - 5
        assert (more[0].message, more[0].offset) == ("3 more findings of this kind are not listed", None)

    def test_overlapping_responses_are_read_a_limited_number_of_times(self, monkeypatch):
        """Each location has the same kilobytes of headers and another length."""
        monkeypatch.setattr(check, "_MIN_READ_LIMIT", 0)
        long = response(header_map({b":status": b"200", b"content-type": b"a/b", b"x": b"y" * 60_000}))
        entries = {f"https://a/{number}": entry((4, len(long) - number)) for number in range(200)}
        bundle = Parts().having(
            index=index(entries | {MANIFEST: entry((4 + len(long), len(RESPONSES[1])))}),
            responses=head(4, 2, 2) + b"\0" + long + RESPONSES[1],
        )
        read = []
        plain = check._Check._read
        monkeypatch.setattr(check._Check, "_read", lambda *asked: read.append(len(found := plain(*asked))) or found)
        report = check_bundle(bundle.written())
        assert report.errors[-1].code == "unchecked"
        assert sum(read) < 10 * len(bundle.written())
