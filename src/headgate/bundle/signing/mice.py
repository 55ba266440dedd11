"""Merkle Integrity Content Encoding (draft-thomson-http-mice-03): a payload that carries the proofs of its own records.

The digest in the header proves the first record and the proof that follows it, which proves the second, and so on; so a
reader may use each record as soon as it is there. `mi-sha256-03` is the only one of its forms that bundles use.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

__all__ = [
    "CODING",
    "LARGEST_RECORD",
    "PAYLOAD_INTEGRITY",
    "RECORD",
    "MiceError",
    "Proven",
    "decode",
    "prove",
    "read_proof",
]

CODING: Final = "mi-sha256-03"
"""The content coding, and the digest algorithm."""
PAYLOAD_INTEGRITY: Final = "digest/mi-sha256-03"
"""What a signature calls a payload that the Digest header proves so."""
RECORD: Final = 4096
"""Bytes of a record that we write: what the reference signer takes when nobody says otherwise."""
LARGEST_RECORD: Final = 16384
"""Bytes of a record that we read (signed exchanges, signature validity): a reader keeps one until it is proven."""

_SIZE: Final = 8
_PROOF: Final = hashlib.sha256().digest_size
_LAST, _MORE = b"\0", b"\1"


class MiceError(Exception):
    """The payload is not what its digest says, or not in this encoding; the text says at which record."""


class Proven(Struct, frozen=True):
    """A payload and its proofs, ready to be written; it keeps 32 bytes for each record and no copy of the payload."""

    content: memoryview
    proofs: bytes
    """All but the first, in record order."""
    digest: str
    """The Digest header's value, which holds the first."""
    record_size: int = RECORD

    @property
    def length(self) -> int:
        """Bytes of the encoded payload; an empty one has none."""
        return (_SIZE + len(self.content) + len(self.proofs)) if self.content else 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the encoded payload, a record at a time."""
        if not self.content:
            return
        yield self.record_size.to_bytes(_SIZE, "big") + self.content[: self.record_size]
        for number in range(len(self.proofs) // _PROOF):
            start = (number + 1) * self.record_size
            proof = self.proofs[number * _PROOF : (number + 1) * _PROOF]
            yield proof + self.content[start : start + self.record_size]


def prove(content: memoryview, record_size: int = RECORD) -> Proven:
    """Compute the proofs, from the last record back to the first."""
    proofs: list[bytes] = []
    ending = _LAST
    for start in reversed(range(0, len(content) or 1, record_size)):
        proof = hashlib.sha256(content[start : start + record_size])
        proof.update(ending)
        proofs.append(proof.digest())
        ending = proofs[-1] + _MORE
    first = proofs.pop()
    digest = f"{CODING}={base64.b64encode(first).decode()}"
    return Proven(content, b"".join(reversed(proofs)), digest, record_size)


def read_proof(digest: str) -> bytes | None:
    """Find the proof in a Digest header's value, which may hold digests of other kinds; None where there is none."""
    for member in digest.split(","):
        algorithm, _, encoded = member.strip(" \t").partition("=")
        if algorithm.lower() == CODING:
            try:
                proof = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                return None
            return proof if len(proof) == _PROOF else None
    return None


def decode(encoded: memoryview, proof: bytes) -> Iterator[memoryview]:
    """Yield the payload, each record when it is proven; raises `MiceError` at the first that is not."""
    if not encoded:
        # "the encoding of an empty payload is itself an empty message ... and its integrity proof is SHA-256("\0")"
        _check(encoded, _LAST, proof, 0)
        return
    record_size = int.from_bytes(encoded[:_SIZE], "big")
    if len(encoded) < _SIZE or not 0 < record_size <= LARGEST_RECORD:
        raise MiceError(f"a record size of {record_size}, not 1 to {LARGEST_RECORD}")
    position, number = _SIZE, 0
    while len(encoded) - position >= record_size + _PROOF:
        end = position + record_size
        _check(encoded[position : end + _PROOF], _MORE, proof, number)
        yield encoded[position:end]
        proof = bytes(encoded[end : end + _PROOF])
        position, number = end + _PROOF, number + 1
    if not 0 < len(encoded) - position <= record_size:
        raise MiceError(f"the payload ends inside record {number}")
    _check(encoded[position:], _LAST, proof, number)
    yield encoded[position:]


def _check(record: memoryview, ending: bytes, proof: bytes, number: int) -> None:
    found = hashlib.sha256(record)
    found.update(ending)
    if found.digest() != proof:
        raise MiceError(f"record {number} is not what its digest says")
