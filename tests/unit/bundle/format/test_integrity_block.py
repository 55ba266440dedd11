"""headgate.bundle.format.integrity_block: the block of a file by wbn-sign, and malformed blocks."""

from pathlib import Path

import pytest

from headgate.bundle.format import cbor
from headgate.bundle.format.incremental import drive, reads_from
from headgate.bundle.format.integrity_block import (
    MAX_INTEGRITY_BLOCK_SIZE,
    IntegrityBlock,
    block_prefix,
    integrity_block_parser,
    write_block,
)
from headgate.errors import FormatError, VersionError

VECTORS = Path(__file__).parents[3] / "vectors" / "bundle"
SIGNED = (VECTORS / "small_b2_signed.swbn").read_bytes()
BUNDLE = (VECTORS / "small_b2.wbn").read_bytes()
ID = "pluvlayvow4jroqa4c6jubpjucbykzrbkn32m2nfhqmafey4ugaaaaic"
MAGIC = "🖋📦".encode()
KEY = {"ed25519PublicKey": bytes(32)}
ENTRY = [KEY, bytes(64)]


def read(content: bytes) -> IntegrityBlock | None:
    return drive(integrity_block_parser(), reads_from(content))


class Watched:
    """Bytes that know how far they were asked for."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked = 0

    def read(self, offset: int, length: int) -> bytes:
        self.asked = max(self.asked, offset + length)
        return self.content[offset : offset + length]


def block(
    *signatures: object, version: bytes = b"2b\0\0", attributes: object = None, more: tuple[object, ...] = ()
) -> bytes:
    attributes = {"webBundleId": ID} if attributes is None else attributes
    return cbor.encode([MAGIC, version, attributes, list(signatures), *more])


def test_blocks_are_read_and_written_unchanged() -> None:
    found = read(SIGNED)
    assert found is not None
    assert SIGNED[found.length :] == BUNDLE
    assert (found.version, found.web_bundle_id) == ("2b", ID)
    assert found.prefix == block_prefix(ID)
    assert found.signed == block()
    (signature,) = found.signatures
    ((name, key),) = signature.byte_attributes
    assert (name, len(key), len(signature.signature)) == ("ed25519PublicKey", 32, 64)
    assert signature.attributes == cbor.encode({name: key})
    assert write_block(found.prefix, [signature.item]) == SIGNED[: found.length]


@pytest.mark.parametrize("content", [BUNDLE, b"", b"\x84", SIGNED[:9], b"garbage, at length", SIGNED[1:]])
def test_other_content_has_no_block(content: bytes) -> None:
    assert read(content) is None


def test_no_byte_after_the_block_is_requested() -> None:
    """A stream may have no more to give yet."""
    source = Watched(SIGNED)
    found = drive(integrity_block_parser(), source.read)
    assert found is not None
    assert found.length == source.asked == len(SIGNED) - len(BUNDLE)


def test_every_prefix_of_a_block_is_refused_or_no_block() -> None:
    length = len(SIGNED) - len(BUNDLE)
    for end in range(length):
        if end < 10:
            assert read(SIGNED[:end]) is None
            continue
        with pytest.raises(FormatError, match=r"ends inside|should begin|is cut") as refusal:
            read(SIGNED[:end])
        assert refusal.value.step.startswith("integrity block")
        assert refusal.value.offset <= end


@pytest.mark.parametrize("version", [b"3b\0\0", b"2b\0\1", b"", b"2\0\0\0"])
def test_unknown_version_is_a_version_error(version: bytes) -> None:
    with pytest.raises(VersionError, match="sign the bundle again") as refusal:
        read(block(ENTRY, version=version))
    assert refusal.value.offset == 10


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (block(ENTRY, more=(1,)), "with 5 items, not 4"),
        (cbor.encode([MAGIC, b"1b\0\0", {"webBundleId": ID}, [ENTRY]]), "with 4 items, not 3"),
        (cbor.encode([MAGIC, b"2b\0\0", [ENTRY]]), "with 3 items, not 4"),
        (cbor.encode([MAGIC, "2b", {}, []]), "got a text string, expected a byte string"),
        (block(ENTRY, attributes={}), "lacks webBundleId"),
        (block(ENTRY, attributes={"webBundleId": b"bytes"}), "expected a text string"),
        (block(ENTRY, attributes=[]), "expected a map"),
        (block(ENTRY, attributes={1: 2}), "expected a text string"),
        (cbor.encode([MAGIC, b"2b\0\0", {"webBundleId": ID}, {}]), "expected an array"),
        (b"\x9f" + block(ENTRY)[1:] + b"\xff", "indefinite"),
        (block(ENTRY).replace(b"\x58\x20", b"\x59\x00\x20"), "shortest"),
        (block({"b": 1, "a": 2}).replace(b"\x61a", b"\x61c"), "not in order"),
        (block()[:-1] + b"\x81\xfa\x3f\xc0\0\0", "shortest"),
        (block()[:-1] + b"\x81\xff", "0xff"),
        (block()[:-1] + b"\x81\x1c", "reserved"),
    ],
)
def test_malformed_blocks_are_format_errors(content: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        read(content + BUNDLE)


@pytest.mark.parametrize(
    "claim",
    [
        b"\x9b" + b"\xff" * 8,
        b"\xbb" + b"\xff" * 8,
        b"\x81\x5b" + b"\xff" * 8,
        b"\x81\x7b\x00\x00\x00\x01\x00\x00\x00\x00",
        b"\x9a\x00\x08\x00\x00",
    ],
)
def test_claimed_lengths_over_the_limit_are_refused_at_once(claim: bytes) -> None:
    source = Watched(block()[:-1] + claim)
    with pytest.raises(FormatError, match=f"more than {MAX_INTEGRITY_BLOCK_SIZE} bytes"):
        drive(integrity_block_parser(), source.read)
    assert source.asked <= len(source.content)


def test_blocks_are_read_up_to_the_size_limit() -> None:
    filler = MAX_INTEGRITY_BLOCK_SIZE - len(block(b"")) - 4
    longest = block(bytes(filler))
    assert len(longest) == MAX_INTEGRITY_BLOCK_SIZE
    assert read(longest) is not None
    with pytest.raises(FormatError, match="more than"):
        read(block(bytes(filler + 1)))


def test_unknown_attributes_are_signed_and_ignored() -> None:
    attributes = {"a": [1, {"b": 2}], "ed25519PublicKey": bytes(32), "zzzzzzzzzzzzzzzzzzz": b"more"}
    found = read(block([attributes, b"sig"], attributes={"a": 1, "webBundleId": ID, "zzzzzzzzzzzz": [2]}))
    assert found is not None
    assert found.web_bundle_id == ID
    (signature,) = found.signatures
    assert signature.attributes == cbor.encode(attributes)
    assert dict(signature.byte_attributes) == {"ed25519PublicKey": bytes(32), "zzzzzzzzzzzzzzzzzzz": b"more"}
