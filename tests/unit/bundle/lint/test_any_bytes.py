"""headgate.bundle.lint: whatever the bytes, it says what a reader says and more, and takes bounded time and memory."""

import mmap
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle import open_bundle
from headgate.bundle.lint import file as files
from headgate.bundle.lint import finding, lint
from headgate.errors import BundleError
from tests.malformed import CASES
from tests.malformed.parts import (
    LOCATIONS,
    MANIFEST,
    PRIMARY,
    RESPONSES,
    Bundle,
    b2,
    draft01,
    entry,
    head,
    header_map,
    index,
    response,
    trailer,
)

PROFILES = ("strict", "compat")
SMALL = [case.content for case in CASES if len(case.content) < 600 and not case.from_end]
OFTEN = [bundle.written() for bundle in (Bundle(), draft01(), b2(), Bundle().having(signatures=b"\x82\x80\x80"))]
HEADS = st.builds(
    head, st.integers(0, 7), st.sampled_from([0, 1, 23, 24, 300, 1 << 32, (1 << 64) - 1]), st.sampled_from([None, 8])
)


@st.composite
def mutated(draw):
    """A small bundle after flips, cuts, splices and other heads."""
    content = bytearray(draw(st.sampled_from(SMALL) | st.sampled_from(OFTEN)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        other = draw(HEADS | st.binary(max_size=4) | st.sampled_from([b"\x9f", b"\xbf", b"\x5f", b"\xff"]))
        content[at : at + draw(st.sampled_from([0, 1, 1, 2, 8, 60]))] = other
    if draw(st.booleans()):
        content[-9:] = trailer(len(content))
    return bytes(content)


def steps_refused(content, **options):
    """Give the steps that a reader refuses: one of the metadata's, or those of the responses."""
    try:
        with open_bundle(content, **options) as bundle:
            found = [exchange.response for exchange in bundle.exchanges()]
            return {answer.step for answer in found if isinstance(answer, BundleError)}
    except BundleError as error:
        return {error.step}


def check(content, **options):
    errors = [one for one in lint(content, **options).errors if one.code != "manifest-not-in-bundle"]
    refused = steps_refused(content, **options)
    assert bool(errors) == bool(refused)
    # A layout that is not the version's is named as that, and not by the step which it makes wrong.
    mixed = any(one.code == finding.MIXUP and one.step == "3.3 step 7" for one in errors)
    assert mixed or refused <= {one.step for one in errors}
    assert all(one.offset is None or one.offset >= 0 for one in errors)


@given(content=mutated(), profile=st.sampled_from(PROFILES), base_url=st.none() | st.just(PRIMARY))
def test_there_are_errors_where_a_reader_refuses_and_nowhere_else(content, profile, base_url):
    check(content, profile=profile, base_url=base_url)


@given(content=st.binary(max_size=200), lead=st.sampled_from([0, 1, 10, 15, 40, 48, 100]))
def test_noise(content, lead):
    check(Bundle().written()[:lead] + content)


@pytest.mark.parametrize("case", [case for case in CASES if case.from_end], ids=lambda case: case.name)
def test_bundles_that_are_read_from_their_end(case):
    check(case.content, from_end=True)


def test_what_a_small_bundle_claims_is_never_allocated():
    claims = [case for case in CASES if len(case.content) < 4096]
    for case in claims:
        tracemalloc.start()
        try:
            lint(case.content)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 300_000, case.name


def many(count: int) -> Bundle:
    """Give a bundle with so many index entries that have a fragment."""
    entries = {PRIMARY: entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1])}
    return Bundle().having(
        index=index(entries | {f"{PRIMARY}#{number}": entry(LOCATIONS[0]) for number in range(count)})
    )


def test_findings_of_one_code_are_counted_where_there_are_very_many(monkeypatch):
    monkeypatch.setattr(finding, "MOST_ALIKE", 5)
    told = lint(many(5).written()).errors
    assert [one.code for one in told] == ["index-url"] * 5
    told = lint(many(8).written()).errors
    assert [one.code for one in told] == ["index-url"] * 6
    assert (told[-1].message, told[-1].offset) == ("and 3 more like those before", None)


def test_responses_that_overlap_without_end_are_not_all_looked_at(monkeypatch):
    """Each location has the same kilobytes of headers, and another length: to read them all takes the square."""
    monkeypatch.setattr(files, "_ALWAYS", 0)
    long = response(header_map({b":status": b"200", b"content-type": b"a/b", b"x": b"y" * 60_000}))
    entries = {f"https://a/{number}": entry((4, len(long) - number)) for number in range(200)}
    bundle = Bundle().having(
        index=index(entries | {MANIFEST: entry((4 + len(long), len(RESPONSES[1])))}),
        responses=head(4, 2, 2) + b"\0" + long + RESPONSES[1],
    )
    read = []
    plain = files.File.read
    monkeypatch.setattr(files.File, "read", lambda *asked: read.append(len(found := plain(*asked))) or found)
    report = lint(bundle.written())
    assert report.errors[-1].code == "unchecked"
    assert sum(read) < 10 * len(bundle.written())


def test_the_memory_of_a_large_file_is_given_back(tmp_path):
    """A mapped file counts as this process's memory where it was read."""
    size, count = 20_000, 3_000
    one = response(header_map({b":status": b"200", b"content-type": b"a/b"}), b"x" * size)
    start = len(head(4, count))
    entries = {f"https://a/{number:05}": entry((start + number * len(one), len(one))) for number in range(count)}
    entries |= {MANIFEST: entry((start, len(one))), PRIMARY: entry((start, len(one)))}
    bundle = Bundle().having(index=index(entries), responses=head(4, count) + one * count)
    path = tmp_path / "large.wbn"
    path.write_bytes(bundle.written())
    given_back = []

    class Counting(mmap.mmap):
        def madvise(self, *advice):
            given_back.append(advice)
            super().madvise(*advice)

    original, mmap.mmap = mmap.mmap, Counting
    try:
        report = lint(path)
    finally:
        mmap.mmap = original
    assert report.errors == []
    assert len(given_back) >= count // 256
    assert set(given_back) == {(mmap.MADV_DONTNEED,)}
