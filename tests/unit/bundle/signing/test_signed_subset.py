"""headgate.bundle.signing.signed_subset: the signed message is compared with the reference signer's own test."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from headgate.bundle.format import cbor, merkle_integrity
from headgate.bundle.signing.signed_subset import (
    ResourceIntegrity,
    SignedSubset,
    SubsetEntry,
    read_subset,
    signed_message,
    write_subset,
)
from tests.cbor_values import decode

REFERENCE_AUTH_SHA256 = "78b587bac23461c0dc1d21b99e461bc9975d136b22755ca1c7a89262827e4857"
"""Of the certificate with which the reference signer tests itself."""
REFERENCE_MESSAGE_SHA256 = "c1d3cc2d4252c56fe43b604487e6eb9c90abaa5d9155000b0059045ae4df1515"
"""What the reference's mock algorithm, which hashes what it is to sign, gives for the bundle of its test."""

SUBSET = SignedSubset(
    "https://example.com/validity",
    bytes(32),
    100,
    200,
    {"https://example.com/": SubsetEntry(b"", (ResourceIntegrity(b"1" * 32, merkle_integrity.PAYLOAD_INTEGRITY),))},
)


def test_signed_message_equals_the_reference_signers() -> None:
    payload = merkle_integrity.mi_encode(lambda: memoryview(b"hello, world!"))
    assert b"".join(payload) == (4096).to_bytes(8, "big") + b"hello, world!"
    headers = {
        b":status": b"200",
        b"content-type": b"text/html",
        b"content-encoding": b"mi-sha256-03",
        b"digest": payload.digest.encode(),
    }
    integrity = ResourceIntegrity(hashlib.sha256(cbor.encode(headers)).digest(), "digest/mi-sha256-03")
    date = int(datetime(2018, 1, 31, 17, 13, 20, tzinfo=UTC).timestamp())
    subset = SignedSubset(
        "https://example.org/resource.validity",
        bytes.fromhex(REFERENCE_AUTH_SHA256),
        date,
        date + 3600,
        {"https://example.org/index.html": SubsetEntry(b"", (integrity,))},
    )
    assert hashlib.sha256(signed_message(write_subset(subset))).hexdigest() == REFERENCE_MESSAGE_SHA256


def members(**other: object) -> bytes:
    known: Mapping[str, object] = decode(write_subset(SUBSET))
    changed = {**known, **{name.replace("_", "-"): value for name, value in other.items()}}
    return cbor.encode({name: value for name, value in changed.items() if value is not None})


def test_unknown_members_are_ignored() -> None:
    assert read_subset(members(zz=["any", {"thing": 1}], a=True)) == SUBSET


INTEGRITY = [b"1" * 32, merkle_integrity.PAYLOAD_INTEGRITY]


MALFORMED = [
    b"",
    b"\xa0",
    b"garbage",
    cbor.encode([1]),
    write_subset(SUBSET) + b"\0",
    write_subset(SUBSET)[:-1],
    members(expires=None),
    members(validity_url=b"bytes"),
    members(auth_sha256="text"),
    members(date="1"),
    members(expires=b"1"),
    members(subset_hashes=[]),
    members(subset_hashes={}),
    members(subset_hashes={"u": []}),
    members(subset_hashes={"u": [b""]}),
    members(subset_hashes={"u": [b"", b"1"]}),
    members(subset_hashes={"u": [b"", *INTEGRITY, b"1"]}),
    members(subset_hashes={"u": ["", *INTEGRITY]}),
    members(subset_hashes={"u": [b"", "1", "2"]}),
    members(subset_hashes={"u": [b"", b"1", b"2"]}),
    members(subset_hashes={b"u": [b"", *INTEGRITY]}),
    # "date" is 100, in two bytes; written in three it is not deterministic.
    write_subset(SUBSET).replace(b"\x18\x64", b"\x19\x00\x64"),
]


def test_malformed_signed_subsets_are_refused() -> None:
    accepted = []
    for signed in MALFORMED:
        with suppress(cbor.CborError):
            accepted.append((signed, read_subset(signed)))
    assert accepted == []
