"""headgate.bundle.check finds errors where readers refuse a bundle, and nowhere else."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle import open_bundle
from headgate.bundle.check import check_bundle
from headgate.errors import BundleError
from tests.malformed import CASES
from tests.malformed.parts import PRIMARY, Bundle, b2, draft01, head, trailer

PROFILES = ("strict", "compat")
SMALL = [case.content for case in CASES if len(case.content) < 600 and not case.from_end]
OFTEN = [bundle.written() for bundle in (Bundle(), draft01(), b2(), Bundle().having(signatures=b"\x82\x80\x80"))]
HEADS = st.builds(
    head, st.integers(0, 7), st.sampled_from([0, 1, 23, 24, 300, 1 << 32, (1 << 64) - 1]), st.sampled_from([None, 8])
)


@st.composite
def mutated(draw):
    """Return a small bundle with changed, removed and inserted bytes and other heads."""
    content = bytearray(draw(st.sampled_from(SMALL) | st.sampled_from(OFTEN)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        other = draw(HEADS | st.binary(max_size=4) | st.sampled_from([b"\x9f", b"\xbf", b"\x5f", b"\xff"]))
        content[at : at + draw(st.sampled_from([0, 1, 1, 2, 8, 60]))] = other
    if draw(st.booleans()):
        content[-9:] = trailer(len(content))
    return bytes(content)


def steps_refused(content, **options):
    """Return the steps that a reader refuses: one of the metadata's, or those of the responses."""
    try:
        with open_bundle(content, **options) as bundle:
            found = [exchange.response for exchange in bundle.exchanges()]
            return {answer.step for answer in found if isinstance(answer, BundleError)}
    except BundleError as error:
        return {error.step}


def check(content, **options):
    errors = [one for one in check_bundle(content, **options).errors if one.code != "manifest-not-in-bundle"]
    refused = steps_refused(content, **options)
    assert bool(errors) == bool(refused)
    assert refused <= {one.step for one in errors}
    assert all(one.offset is None or one.offset >= 0 for one in errors)


@given(content=mutated(), profile=st.sampled_from(PROFILES), base_url=st.none() | st.just(PRIMARY))
def test_errors_of_changed_bundles_are_those_of_readers(content, profile, base_url):
    check(content, profile=profile, base_url=base_url)


@given(content=st.binary(max_size=200), lead=st.sampled_from([0, 1, 10, 15, 40, 48, 100]))
def test_errors_of_random_bytes_are_those_of_readers(content, lead):
    check(Bundle().written()[:lead] + content)
