"""headgate.bundle.signing.integrity."""

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from headgate.bundle.api import open_bundle
from headgate.bundle.format import cbor
from headgate.bundle.format.incremental import drive, reads_from
from headgate.bundle.format.integrity_block import IntegrityBlock, integrity_block_parser
from headgate.bundle.signing import add_integrity, keys, remove_integrity, verify_bundle
from headgate.bundle.signing.integrity import verify_block
from headgate.bundle.signing.report import Reason, Signature
from headgate.errors import BundleError, ConfigurationError, HeadgateError
from tests import signers

VECTORS = Path(__file__).parents[3] / "vectors" / "bundle"
SIGNED = (VECTORS / "small_b2_signed.swbn").read_bytes()
BUNDLE = (VECTORS / "small_b2.wbn").read_bytes()
ID = "pluvlayvow4jroqa4c6jubpjucbykzrbkn32m2nfhqmafey4ugaaaaic"
ED, P256 = signers.ed(), signers.p256()
ED_ID, P256_ID = (keys.web_bundle_id(key.public_key()) for key in (ED, P256))


def added(source: bytes, key: keys.PrivateKey, **options: Any) -> bytes:
    out = io.BytesIO()
    with open_bundle(source) as bundle:
        add_integrity(bundle, out, key=signers.pem(key), **options)
    return out.getvalue()


def removed(source: bytes, key: keys.PrivateKey | None = None) -> bytes:
    out = io.BytesIO()
    with open_bundle(source) as bundle:
        remove_integrity(bundle, out, key=signers.pem(key) if key else None)
    return out.getvalue()


def block_of(content: bytes) -> IntegrityBlock:
    block = drive(integrity_block_parser(), reads_from(content))
    assert block is not None
    return block


def verified(content: bytes) -> tuple[Signature, ...]:
    block = block_of(content)
    return verify_block(block, hashlib.sha512(content[block.length :]).digest())


def codes(content: bytes) -> list[str | None]:
    return [signature.reason and signature.reason.partition(": ")[0] for signature in verified(content)]


def forged(*entries: Any, web_bundle_id: str = ED_ID, version: bytes = b"2b\0\0") -> bytes:
    """Write a block by hand, before the bundle."""
    attributes = [] if version == b"1b\0\0" else [{"webBundleId": web_bundle_id}]
    return cbor.encode(["🖋📦".encode(), version, *attributes, list(entries)]) + BUNDLE


def message(attributes: Any, *, web_bundle_id: str = ED_ID) -> bytes:
    block = cbor.encode(["🖋📦".encode(), b"2b\0\0", {"webBundleId": web_bundle_id}, []])
    parts = [hashlib.sha512(BUNDLE).digest(), block, cbor.encode(attributes)]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def by_ed(attributes: Any = None, key: Any = ED, **options: Any) -> list[Any]:
    attributes = attributes or {"ed25519PublicKey": key.public_key().public_bytes_raw()}
    return [attributes, key.sign(message(attributes, **options))]


def by_p256(**options: Any) -> list[Any]:
    attributes = {"ecdsaP256SHA256PublicKey": keys.raw_public_key(P256.public_key())}
    return [attributes, P256.sign(message(attributes, **options), ec.ECDSA(SHA256()))]


def test_bundles_of_wbn_sign_are_valid() -> None:
    with open_bundle(SIGNED) as bundle:
        verification = verify_bundle(bundle, now=0)
        assert (verification.valid, verification.web_bundle_id) == (True, ID)
        assert [signature.kind for signature in verification.signatures] == ["integrity-block"]
        assert bundle.integrity_block is not None
        assert [one.key_id for one in bundle.integrity_block.signatures] == [ID]


def valid_at_all(content: bytes) -> bool:
    try:
        with open_bundle(content) as bundle:
            return verify_bundle(bundle, now=0).valid
    except BundleError:
        return False


@pytest.mark.parametrize("second", [False, True])
def test_every_changed_byte_is_detected(second: bool) -> None:
    content = added(SIGNED, P256) if second else SIGNED
    assert valid_at_all(content)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        assert not valid_at_all(bytes(changed)), position


def test_bundles_signed_by_hand_are_valid() -> None:
    assert codes(forged(by_ed())) == [None]
    assert codes(forged(by_p256(web_bundle_id=P256_ID), web_bundle_id=P256_ID)) == [None]
    assert codes(forged(by_ed(), by_p256())) == [None, None]


@pytest.mark.parametrize(("key", "web_bundle_id"), [(ED, ED_ID), (P256, P256_ID)])
def test_signed_bundles_are_valid_and_have_the_id_of_the_key(key: keys.PrivateKey, web_bundle_id: str) -> None:
    content = added(BUNDLE, key)
    assert content.endswith(BUNDLE)
    assert block_of(content).web_bundle_id == web_bundle_id
    assert codes(content) == [None]
    assert added(BUNDLE, key) == content
    assert removed(content) == BUNDLE


def test_second_key_keeps_the_web_bundle_id() -> None:
    content = added(added(BUNDLE, ED), P256)
    assert block_of(content).web_bundle_id == ED_ID
    assert codes(content) == [None, None]
    assert [one.key_id for one in block_of(content).signatures] == [ED_ID, P256_ID]
    assert removed(content, P256) == added(BUNDLE, ED)
    assert removed(removed(content, P256), ED) == BUNDLE


def test_second_signature_by_a_key_replaces_the_first() -> None:
    assert added(added(BUNDLE, ED), ED) == added(BUNDLE, ED)


def test_key_of_the_id_may_sign_last() -> None:
    content = added(BUNDLE, P256, web_bundle_id=ED_ID)
    assert codes(content) == [Reason.WRONG_WEB_BUNDLE_ID]
    assert codes(added(content, ED)) == [None, None]


def test_removing_a_missing_signature_is_refused() -> None:
    with pytest.raises(HeadgateError, match="has no integrity block"):
        removed(BUNDLE)
    with pytest.raises(HeadgateError, match="no signature by this key"):
        removed(added(BUNDLE, ED), P256)


def test_key_of_the_id_is_removed_last() -> None:
    both = added(added(BUNDLE, ED), P256)
    with pytest.raises(HeadgateError, match="the web bundle id is derived from this key"):
        removed(both, ED)
    assert removed(removed(both, P256), ED) == BUNDLE


def test_invalid_block_is_not_signed_again() -> None:
    with pytest.raises(HeadgateError, match="is not valid, remove it first: bad-signature"):
        added(forged([{"ed25519PublicKey": bytes(32)}, bytes(64)]), ED)
    with pytest.raises(ConfigurationError, match=f"signed as {ED_ID}"):
        added(added(BUNDLE, ED), P256, web_bundle_id=P256_ID)
    with pytest.raises(HeadgateError, match="is not valid, remove it first: block-version"):
        added(forged(by_ed(), version=b"1b\0\0"), ED)


ED_KEY = {"ed25519PublicKey": ED.public_key().public_bytes_raw()}
BOTH = {**ED_KEY, "ecdsaP256SHA256PublicKey": keys.raw_public_key(P256.public_key())}

UNKNOWN = [
    [], 1, "text", b"bytes", {}, True, [ED_KEY], [ED_KEY, bytes(64), 1], [ED_KEY, "text"], [[], b""], [{1: b""}, b""],
    [{}, bytes(64)], [{"ed448PublicKey": bytes(57)}, bytes(114)], [ED_KEY, bytes(63)],
    [{"ed25519PublicKey": bytes(31)}, bytes(64)], [{"ecdsaP256SHA256PublicKey": bytes(65)}, bytes(70)],
    [BOTH, ED.sign(message(BOTH))], [{"ed25519PublicKey": "text"}, bytes(64)],
]  # fmt: skip


@pytest.mark.parametrize("entry", UNKNOWN)
def test_unknown_signatures_are_not_valid(entry: Any) -> None:
    assert codes(forged(entry, by_ed())) == [Reason.UNKNOWN_KIND, None]
    assert codes(forged(entry)) == [Reason.UNKNOWN_KIND]
    with open_bundle(forged(entry, by_ed())) as bundle:
        assert not verify_bundle(bundle, now=0).valid
    with pytest.raises(HeadgateError, match="is not valid, remove it first: unknown-kind"):
        added(forged(entry, by_ed()), P256)
    assert [one.key_id for one in block_of(forged(entry, by_ed())).signatures] == [None, ED_ID]


def test_blocks_without_signatures_are_not_valid() -> None:
    assert codes(forged()) == [Reason.NO_SIGNATURE]


def test_every_signature_must_be_valid() -> None:
    other = signers.ed(2)
    stale = [{"ed25519PublicKey": other.public_key().public_bytes_raw()}, other.sign(b"something else")]
    assert codes(forged(by_ed(), stale)) == [None, Reason.BAD_SIGNATURE]
    with open_bundle(forged(by_ed(), stale)) as bundle:
        assert not verify_bundle(bundle, now=0).valid


@pytest.mark.parametrize("raw", [b"\5" + bytes(32), b"\2" + b"\xff" * 32])
def test_invalid_public_keys_are_reported(raw: bytes) -> None:
    content = forged([{"ecdsaP256SHA256PublicKey": raw}, bytes(70)])
    assert codes(content) == [Reason.BAD_KEY]


@pytest.mark.parametrize("web_bundle_id", ["", "other", P256_ID, ED_ID.upper(), ED_ID + "="])
def test_web_bundle_id_is_derived_from_one_of_the_keys(web_bundle_id: str) -> None:
    content = forged(by_ed(web_bundle_id=web_bundle_id), web_bundle_id=web_bundle_id)
    assert codes(content) == [Reason.WRONG_WEB_BUNDLE_ID]
    with open_bundle(content) as bundle:
        verification = verify_bundle(bundle, now=0)
    assert (verification.valid, verification.web_bundle_id) == (False, web_bundle_id)


def test_version_1b_is_invalid_and_can_be_removed() -> None:
    content = forged(by_ed(), version=b"1b\0\0")
    assert (block_of(content).version, block_of(content).web_bundle_id) == ("1b", None)
    assert codes(content) == [Reason.BLOCK_VERSION]
    assert removed(content) == BUNDLE
