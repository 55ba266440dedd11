"""For any bytes, all readers of bundles return the same, or raise the same `BundleError`; and so does the check."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle import open_bundle
from headgate.bundle.check import check_bundle
from headgate.errors import BundleError
from tests.malformed import CASES, MANIFEST, PRIMARY, drivers, named
from tests.malformed.agreement import BLOCK, check_agreement, check_case, locations
from tests.malformed.drivers import Read
from tests.malformed.parts import Bundle, array, b2, draft01, entry, head, index, response, trailer

VECTORS = Path(__file__).parents[1] / "vectors" / "bundle"
PROFILES = ("strict", "compat")
REAL = {path.name: path.read_bytes() for path in sorted(VECTORS.glob("*.*wbn"))}
GOOD = {
    case.name: case.content for case in CASES if case.expected == "ok" and len(case.content) < 600 and not case.from_end
}
VALID = [*(REAL | GOOD).values()]
SMALL = REAL | {name: GOOD[name] for name in ("good b1", "good draft-01", "good b2", "signatures: one of each")}
HEADS = st.builds(
    head,
    st.integers(0, 7),
    st.sampled_from([0, 1, 2, 23, 24, 255, 256, 8191, 8192, 524_287, 1 << 32, 1 << 63, (1 << 64) - 1]),
    st.none(),
)


def test_each_case_gives_the_expected_result():
    for case in CASES:
        for profile in PROFILES:
            with named(f"{case.name} ({profile})"):
                check_case(case, profile)


def test_all_readers_agree_on_each_case(tmp_path):
    for case in CASES:
        if case.from_end:
            continue
        size = len(case.content)
        every_byte = list(range(size)) if size < 2000 else [10, 100, size // 2, size - 1]
        for profile in PROFILES:
            with named(f"{case.name} ({profile})"):
                check_agreement(case.content, profile, every_byte, tmp_path / "x.wbn")


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("content", SMALL.values(), ids=SMALL)
def test_every_prefix_of_a_valid_bundle_is_refused_where_it_is_cut(content, step, tmp_path):
    path = tmp_path / "x.wbn"
    whole = drivers.from_bytes(content, "compat")
    assert isinstance(whole, Read)
    start = len(content) - int.from_bytes(content[-8:], "big") if content[1:].startswith(BLOCK) else 0
    needed = start + whole.metadata.sections[-1].offset
    unread = [section for section in whole.metadata.sections if section.name not in KNOWN_EVERYWHERE]
    for size in range(0, len(content), step):
        answer = check_agreement(content[:size], "compat", [size // 2, size - 1], path)
        if isinstance(answer, Read):
            # Nothing after the last section that is read is waited for, and exactly the cut responses are refused.
            assert answer.metadata == whole.metadata
            assert size >= needed or unread
            ends = {(url, key or None): start + at + length for at, length, url, key in locations(whole.metadata)}
            assert answer.refused().keys() == {key for key, end in ends.items() if end > size}
        else:
            assert size < needed
            assert answer.kind == "format"
            assert answer.offset >= 0


KNOWN_EVERYWHERE = {"index", "manifest", "responses", "critical", "signatures", "primary"}


def steps_refused(content, **options):
    """Return the steps that a reader refuses: one of the metadata's, or those of the responses."""
    try:
        with open_bundle(content, **options) as bundle:
            found = [exchange.response for exchange in bundle.exchanges()]
            return {answer.step for answer in found if isinstance(answer, BundleError)}
    except BundleError as error:
        return {error.step}


def compare_check(content, **options):
    """See that the check finds errors where readers refuse a bundle, and nowhere else."""
    errors = [one for one in check_bundle(content, **options).errors if one.code != "manifest-not-in-bundle"]
    refused = steps_refused(content, **options)
    assert bool(errors) == bool(refused)
    assert refused <= {one.step for one in errors}
    assert all(one.offset is None or one.offset >= 0 for one in errors)


@st.composite
def mutated(draw, bundles):
    """Return one of the bundles with changed, removed and inserted bytes, and other heads."""
    content = bytearray(draw(st.sampled_from(bundles)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        size = draw(st.sampled_from([0, 1, 1, 2, 8, 60]))
        other = draw(
            st.one_of(
                HEADS,
                st.binary(max_size=4),
                st.builds(
                    lambda start, content=content, size=size: bytes(content[start : start + size]), st.integers(0, 999)
                ),
            )
        )
        content[at : at + size] = other
    ending = draw(st.sampled_from(["as it is", "cut", "with its length"]))
    if ending == "cut":
        del content[draw(st.integers(0, len(content))) :]
    elif ending == "with its length":
        content[-9:] = trailer(len(content))
    return bytes(content)


@given(content=mutated(VALID), profile=st.sampled_from(PROFILES), cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_all_readers_agree_on_changed_bundles(content, profile, cuts, tmp_path_factory):
    check_agreement(content, profile, cuts, tmp_path_factory.getbasetemp() / "mutated.wbn")


INNER = response()
OUTER = response(payload=INNER)
NESTED = ((1, len(OUTER)), (1 + len(OUTER) - len(INNER), len(INNER)), (1 + len(OUTER), len(INNER)))
"""A response, one that is its payload, and one after it."""
PLACES = [(offset + moved, length + more) for offset, length in NESTED for moved in (0, 0, 1) for more in (0, 0, -1, 1)]


@given(first=st.sampled_from(PLACES), second=st.sampled_from(PLACES), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_all_readers_agree_on_overlapping_responses(first, second, cuts, tmp_path_factory):
    entries = index({PRIMARY: entry(first), MANIFEST: entry(second)})
    bundle = Bundle().having(index=entries, responses=array(OUTER, INNER) + b"..")
    check_agreement(bundle.written(), "strict", cuts, tmp_path_factory.getbasetemp() / "overlapping.wbn")


@given(
    content=st.binary(max_size=200), lead=st.sampled_from([0, 10, 15, 40, 48, 100]), profile=st.sampled_from(PROFILES)
)
def test_all_readers_agree_on_random_bytes(content, lead, profile, tmp_path_factory):
    content = Bundle().written()[:lead] + content
    check_agreement(content, profile, [lead], tmp_path_factory.getbasetemp() / "noise.wbn")
    compare_check(content, profile=profile)


@pytest.mark.parametrize(
    "read",
    [
        lambda content: drivers.from_bytes(content, "strict"),
        lambda content: drivers.from_stream([content], "strict"),
        check_bundle,
    ],
)
def test_claimed_lengths_are_not_allocated(read):
    claims = [case for case in CASES if len(case.content) < 4096 and not case.from_end]
    assert sum("2^" in case.name or "claimed" in case.name for case in claims) > 40
    for case in claims:
        tracemalloc.start()
        try:
            read(case.content)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 400_000, case.name


WRONG = [case.content for case in CASES if len(case.content) < 600 and not case.from_end]
OFTEN = [bundle.written() for bundle in (Bundle(), draft01(), b2(), Bundle().having(signatures=b"\x82\x80\x80"))]


@given(mutated(WRONG) | mutated(OFTEN), st.sampled_from(PROFILES), st.none() | st.just(PRIMARY))
def test_errors_of_changed_bundles_are_those_of_readers(content, profile, base_url):
    compare_check(content, profile=profile, base_url=base_url)
