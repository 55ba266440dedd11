"""The integrity block: signatures over a whole bundle, before its first byte (Web Bundles Integrity Block).

Reads and writes blocks; `headgate.bundle.signing` verifies them. Offsets count from the first byte of the block, which
is that of the file; the bundle begins at `IntegrityBlock.length`.
"""

import base64
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from headgate.bundle.format import cbor
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.errors import FormatError, VersionError

STEP: Final = "integrity block"
"""The step in errors: the explainer does not number its steps."""

MAX_INTEGRITY_BLOCK_SIZE: Final = 524_288
"""A longer block is refused, since it is held in memory."""

IntegrityVersion: TypeAlias = Literal["1b", "2b"]

_MAGIC_ITEM: Final = cbor.data("🖋📦".encode())
_VERSIONS: Final[dict[bytes, tuple[IntegrityVersion, int]]] = {b"1b\0\0": ("1b", 3), b"2b\0\0": ("2b", 4)}
"""From version bytes to the name of the version and the items of its block: 1b has no attributes."""
KEY_LENGTHS: Final = {"ed25519PublicKey": 32, "ecdsaP256SHA256PublicKey": 33}
"""From the attribute of a signature to the bytes of its public key; a P-256 point is compressed."""
SIGNATURE_LENGTHS: Final = {"ed25519PublicKey": 64}
"""Bytes of a signature, of the kinds that have a length."""
_ID_SUFFIXES: Final = {"ed25519PublicKey": b"\0\1\2", "ecdsaP256SHA256PublicKey": b"\0\2\2"}
"""The end of a web bundle id, by the kind of key (Isolated Web Apps, Scheme)."""


class IntegritySignature(Struct, frozen=True):
    """One entry of a block's signature list."""

    item: bytes
    """The entry's CBOR bytes, whole."""
    attributes: bytes = b""
    """The CBOR bytes of its attributes, which are signed. Empty for an entry that is not a pair."""
    byte_attributes: tuple[tuple[str, bytes], ...] = ()
    """Every attribute that is a byte string, in order; one of them is the public key."""
    signature: bytes = b""

    @property
    def kind(self) -> str | None:
        """The attribute with the public key, which names the kind of signature; None for an unknown kind."""
        # "The attributes must always contain exactly one of the following two entries"
        known = [(name, raw) for name, raw in self.byte_attributes if name in KEY_LENGTHS]
        if len(known) != 1 or len(known[0][1]) != KEY_LENGTHS[known[0][0]]:
            return None
        kind = known[0][0]
        return kind if len(self.signature) == SIGNATURE_LENGTHS.get(kind, len(self.signature)) else None

    @property
    def key_id(self) -> str | None:
        """The web bundle id of the entry's key; None for an unknown kind."""
        return key_id(self.kind, dict(self.byte_attributes)[self.kind]) if self.kind else None


class IntegrityBlock(Struct, frozen=True):
    """An integrity block, read and not verified."""

    version: IntegrityVersion
    web_bundle_id: str | None
    """The id that the bundle claims; None in version 1b."""
    prefix: bytes
    """Its bytes up to the signature list: followed by an empty list, the block that is signed."""
    signatures: tuple[IntegritySignature, ...]
    length: int
    """Bytes of the whole block; the bundle follows them."""

    @property
    def signed(self) -> bytes:
        """The part of the block that is signed: the block without signatures."""
        return write_block(self.prefix, ())


def key_id(attribute: str, raw: bytes) -> str:
    """Return the id of a bundle signed by this key: base32 of the key and its kind, in lower case, without padding."""
    return base64.b32encode(raw + _ID_SUFFIXES[attribute]).decode().rstrip("=").lower()


def integrity_block_parser() -> Parser[IntegrityBlock | None]:
    """Read the integrity block at the first byte of a file; return None where there is none.

    Requests no byte after the block, and ten where there is none. Raises `FormatError` for a malformed block, and
    `VersionError` for an unknown version.
    """
    start = bytes((yield ReadRequest(0, 1 + len(_MAGIC_ITEM))))
    if start[1:] != _MAGIC_ITEM:
        return None
    block = yield from _gather()
    items = cbor.Items(block)
    try:
        return _read_block(items)
    except cbor.CborError as error:
        raise FormatError(error.reason, step=_step(error.step), offset=error.offset) from None


def block_prefix(web_bundle_id: str) -> bytes:
    """Encode a 2b block up to its signature list."""
    items = (_MAGIC_ITEM, cbor.data(b"2b\0\0"), cbor.encode({"webBundleId": web_bundle_id}))
    return cbor.head(cbor.ARRAY, len(items) + 1) + b"".join(items)


def write_block(prefix: bytes, signatures: Sequence[bytes]) -> bytes:
    """Encode a whole block: its bytes up to the signature list, and the list of these entries."""
    return prefix + cbor.array(signatures)


def _gather() -> Parser[bytes]:
    """Read one whole item of any depth, and no byte after it: a stream may not have more yet."""
    block = bytearray()
    open_items = 1
    while open_items:
        start = len(block)
        try:
            major, argument, encoded = yield from cbor.head_parser(start)
        except cbor.CborError as error:
            raise FormatError(error.reason, step=_step(error.step), offset=start) from None
        block += encoded
        open_items -= 1
        if major in (cbor.ARRAY, cbor.MAP):
            open_items += argument * (2 if major == cbor.MAP else 1)
        elif major == cbor.TAG:
            open_items += 1
        # Every item has at least one byte, so a claim that cannot fit is refused without waiting for it.
        string = argument if major in (cbor.BYTES, cbor.TEXT) else 0
        if len(block) + string + open_items > MAX_INTEGRITY_BLOCK_SIZE:
            raise FormatError(
                f"an integrity block of more than {MAX_INTEGRITY_BLOCK_SIZE} bytes", step=STEP, offset=start
            )
        content = yield ReadRequest(len(block), string)
        if len(content) < string:
            fault = "the file ends inside its integrity block"
            raise FormatError(fault, step=STEP, offset=len(block) + len(content))
        block += content
    return bytes(block)


def _read_block(items: cbor.Items) -> IntegrityBlock:
    count = items.array()
    items.data()
    start = items.position
    version_bytes = items.data()
    if version_bytes not in _VERSIONS:
        raise VersionError(
            f"unknown version {version_bytes!r} of the integrity block, expected 2b; sign the bundle again",
            step=STEP,
            offset=start,
        )
    version, expected = _VERSIONS[version_bytes]
    if count != expected:
        raise cbor.CborError(f"an integrity block of version {version} with {count} items, not {expected}", "", 0)
    # The attributes may have more members.
    web_bundle_id = items.record({"webBundleId": items.text})["webBundleId"] if version != "1b" else None
    prefix = items.source[: items.position]
    signatures = tuple(_read_signature(items) for _ in range(items.array()))
    return IntegrityBlock(version, web_bundle_id, prefix, signatures, items.position)


def _read_signature(items: cbor.Items) -> IntegritySignature:
    """Read one entry; one that is not a pair of attributes and signature is an unknown signature, not an error."""
    item = items.any()
    entry = cbor.Items(item)
    try:
        entry.array(2)
        start = entry.position
        byte_attributes = tuple(_read_byte_attributes(entry))
        return IntegritySignature(item, item[start : entry.position], byte_attributes, entry.data())
    except cbor.CborError:
        return IntegritySignature(item)


def _read_byte_attributes(entry: cbor.Items) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for key in entry.entries(entry.text):
        if entry.peek() == cbor.BYTES:
            found.append((key, entry.data()))
        else:
            entry.any()
    return found


def _step(inner: str) -> str:
    return f"{STEP}, {inner}" if inner else STEP
