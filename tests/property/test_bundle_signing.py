"""Any bytes are refused as a bundle, or their signatures are verified; changed bundles are never valid."""

import hashlib
import io

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.bundle.api import open_bundle
from headgate.bundle.signing import Verification, add_integrity, verify_bundle
from headgate.bundle.signing.report import Reason
from headgate.errors import BundleError
from tests import signers
from tests.unit.bundle.signing import forging

ROOT_KEY = signers.p256(2)
ROOTS = signers.certificate_pem(signers.root(ROOT_KEY))
LEAF = signers.der(signers.certificate(issuer=(signers.root(ROOT_KEY), ROOT_KEY)))


def with_block(content: bytes) -> bytes:
    out = io.BytesIO()
    with open_bundle(content) as bundle:
        add_integrity(bundle, out, key=signers.pem(signers.ed()))
    return out.getvalue()


SIGNED = with_block(forging.written(forging.vouch()))

EDITS = st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 3), st.binary(max_size=4)), min_size=1, max_size=4)
"""Position, number of removed bytes, and the bytes in their place."""


def edited(content: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    changed = bytearray(content)
    for position, taken, placed in edits:
        start = position % (len(changed) or 1)
        changed[start : start + taken] = placed
    return bytes(changed)


def answer(content: bytes, *, trust: bytes | None = None) -> Verification | None:
    try:
        bundle = open_bundle(content)
    except BundleError:
        return None
    with bundle:
        if bundle.integrity_block is not None:
            assert all(isinstance(entry.key_id, str | None) for entry in bundle.integrity_block.signatures)
        return verify_bundle(bundle, now=signers.NOW, trust=trust, any_certificate=trust is None)


def test_unchanged_bundle_is_valid() -> None:
    found = answer(SIGNED)
    assert found is not None
    assert [signature.valid for signature in found.signatures] == [True, True]


@given(EDITS)
@example([(0, 0, b"\x00")])
def test_changed_bundles_are_not_valid(edits: list[tuple[int, int, bytes]]) -> None:
    content = edited(SIGNED, edits)
    found = answer(content)
    assert content == SIGNED or found is None or not found.valid


@given(EDITS, st.booleans())
def test_changed_certificates_are_read_or_refused(edits: list[tuple[int, int, bytes]], trusts: bool) -> None:
    der = edited(LEAF, edits)
    vouched = forging.vouch(auth_sha256=hashlib.sha256(der).digest())
    content = forging.written(vouched, authorities=[{"cert": der}])
    found = answer(content, trust=ROOTS if trusts else None)
    assert found is not None
    for signature in found.signatures:
        assert signature.valid or Reason((signature.reason or "").partition(": ")[0])


@given(st.binary(max_size=300))
def test_random_signed_bytes_are_not_valid(signed: bytes) -> None:
    found = answer(forging.written(forging.vouch(signed)))
    assert found is not None
    assert not found.valid
