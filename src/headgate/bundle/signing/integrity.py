"""Signing with an integrity block, and verifying one: Ed25519 and P-256 over the SHA-512 of the whole bundle."""

import hashlib
from typing import Final

from headgate.bundle.format import cbor
from headgate.bundle.format.integrity_block import IntegrityBlock, IntegritySignature, block_prefix, write_block
from headgate.bundle.model import Location
from headgate.bundle.reader import Bundle
from headgate.bundle.signing import keys
from headgate.bundle.signing.report import Reason, Signature
from headgate.errors import HeadgateError, fail_if

_UNCHECKED: Final = ("whether the key was lost or revoked: keys of integrity blocks never expire",)
_UNCHECKED_ID: Final = "whether the web bundle id is the expected one: anyone can sign with a key of their own"


def sign_block(
    digest: bytes, key: keys.PrivateKey, *, block: IntegrityBlock | None = None, web_bundle_id: str | None = None
) -> bytes:
    """Return the integrity block for the bundle with this digest: `block`, if given, with a signature by `key`.

    A new block's web bundle id is derived from the key unless it is given. An earlier signature by that key is
    replaced. Raises `HeadgateError` where `block` is not valid for this bundle, `ConfigurationError` where it has
    another web bundle id than the one given.
    """
    public_key = key.public_key()
    if block is None:
        prefix = block_prefix(web_bundle_id or keys.web_bundle_id(public_key))
        entries: list[bytes] = []
    else:
        _check_block(block, digest, web_bundle_id)
        prefix = block.prefix
        entries = [entry.item for entry in block.signatures if not _is_by(entry, public_key)]
    attributes = cbor.encode({keys.attribute_of(public_key): keys.raw_public_key(public_key)})
    signature = keys.sign(key, _message(digest, write_block(prefix, ()), attributes))
    entries.append(cbor.array([attributes, cbor.data(signature)]))
    return write_block(prefix, entries)


def remove_signature(block: IntegrityBlock, key: keys.PrivateKey | keys.PublicKey) -> bytes:
    """Return the block without the signature by this key; empty if that was the only one.

    Raises `HeadgateError` where it is missing, and where the other signatures need it.
    """
    public_key = key.public_key() if isinstance(key, keys.PrivateKey) else key
    left = [entry for entry in block.signatures if not _is_by(entry, public_key)]
    if len(left) == len(block.signatures):
        raise HeadgateError(
            "the integrity block has no signature by this key; list its keys with: headgate bundle info"
        )
    if left and block.web_bundle_id == keys.web_bundle_id(public_key):
        # The id is signed and cannot change, and one that is derived from none of the keys is not valid.
        raise HeadgateError(
            "the web bundle id is derived from this key, and the other signatures would not be valid without it; "
            "remove the whole block and sign again"
        )
    return write_block(block.prefix, [entry.item for entry in left]) if left else b""


def verify_block(block: IntegrityBlock, digest: bytes, *, web_bundle_id: str | None = None) -> tuple[Signature, ...]:
    """Verify every signature of a block over a bundle, and that its web bundle id is derived from one of the keys.

    With `web_bundle_id` the block must have this id. Without it, valid means that the holder of the key from which the
    id is derived signed the whole file.

    The explainer ignores signatures of unknown kinds. Here they are invalid, since an attacker could hide a signature
    by changing its kind.
    """
    if block.version == "1b":
        return (_invalid(Reason.BLOCK_VERSION, "an integrity block of version 1b, which is obsolete; sign again"),)
    if not block.signatures:
        return (_invalid(Reason.NO_SIGNATURE, "the integrity block has no signature"),)
    unchecked = _UNCHECKED if web_bundle_id is not None else (_UNCHECKED_ID, *_UNCHECKED)
    found = [_verify(entry, digest, block, unchecked) for entry in block.signatures]
    fault = _fault_of_id(block, web_bundle_id)
    if fault:
        wrong = _invalid(Reason.WRONG_WEB_BUNDLE_ID, fault)
        return tuple(wrong if signature.valid else signature for signature in found)
    return tuple(found)


def _fault_of_id(block: IntegrityBlock, expected: str | None) -> str:
    """Return what is wrong with the block's web bundle id; empty if it is valid."""
    shown = repr(str(block.web_bundle_id)[:80])
    if block.web_bundle_id not in [entry.key_id for entry in block.signatures]:
        return f"the web bundle id {shown} is derived from none of the block's keys"
    if expected is not None and block.web_bundle_id != expected:
        return f"the web bundle id is {shown}, expected {expected[:80]!r}"
    return ""


def _verify(entry: IntegritySignature, digest: bytes, block: IntegrityBlock, unchecked: tuple[str, ...]) -> Signature:
    attribute = entry.kind
    if attribute is None:
        return _invalid(Reason.UNKNOWN_KIND, "the signature is neither by Ed25519 nor by P-256, and was not checked")
    raw = dict(entry.byte_attributes)[attribute]
    try:
        public_key = keys.load_public_key(attribute, raw)
    except ValueError:
        return _invalid(Reason.BAD_KEY, f"{raw.hex()} is not a valid {attribute}")
    if not keys.verify_signature(public_key, entry.signature, _message(digest, block.signed, entry.attributes)):
        fault = f"the key of {keys.web_bundle_id(public_key)} did not sign these bytes"
        return _invalid(Reason.BAD_SIGNATURE, fault)
    return Signature("integrity-block", valid=True, unchecked=unchecked)


def _message(digest: bytes, block: bytes, attributes: bytes) -> bytes:
    """Return what is signed: three parts, each after its length in 64 bits."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in (digest, block, attributes))


def bundle_digest(bundle: Bundle) -> bytes:
    """Return the digest of a bundle that is signed."""
    digest = hashlib.sha512()
    for piece in bundle.pieces(Location(0, bundle.size)):
        digest.update(piece)
    return digest.digest()


def _check_block(block: IntegrityBlock, digest: bytes, web_bundle_id: str | None) -> None:
    fail_if(
        web_bundle_id not in (None, block.web_bundle_id),
        f"the bundle is signed as {block.web_bundle_id} already; remove its integrity block first",
    )
    # An id that is derived from none of the keys may be that of the new key.
    allowed = f"{Reason.WRONG_WEB_BUNDLE_ID}: "
    reasons = [signature.reason for signature in verify_block(block, digest) if signature.reason]
    if wrong := [reason for reason in reasons if not reason.startswith(allowed)]:
        raise HeadgateError(f"the integrity block is not valid, remove it first: {wrong[0]}")


def _is_by(entry: IntegritySignature, key: keys.PublicKey) -> bool:
    return (keys.attribute_of(key), keys.raw_public_key(key)) in entry.byte_attributes


def _invalid(reason: Reason, sentence: str) -> Signature:
    return Signature("integrity-block", valid=False, reason=f"{reason}: {sentence}")
