"""The integrity block: signatures over a whole bundle, standing before its first byte (Web Bundles Integrity Block).

This file finds the block, reads it and writes it; it knows no key and verifies nothing (`headgate.bundle.signing`
does), so that a bundle behind a block can be read wherever a bundle can. Its parser counts offsets from the first byte
of the block: that is the first byte of the file, and the bundle begins at `IntegrityBlock.length`.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from headgate.bundle.format import cbor
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.errors import FormatError, VersionError

__all__ = [
    "MAX_BLOCK_SIZE",
    "STEP",
    "IntegrityBlock",
    "IntegritySignature",
    "IntegrityVersion",
    "block_prefix",
    "integrity_block_parser",
    "write_block",
]

STEP: Final = "integrity block"
"""The step that every refusal here names: the explainer has no numbers."""

MAX_BLOCK_SIZE: Final = 524_288
"""A longer block is refused: the explainer holds one in memory, and the document's sections end there too."""

IntegrityVersion: TypeAlias = Literal["1b", "2b"]

_MAGIC_ITEM: Final = cbor.data("🖋📦".encode())
_VERSIONS: Final[dict[bytes, tuple[IntegrityVersion, int]]] = {b"1b\0\0": ("1b", 3), b"2b\0\0": ("2b", 4)}
"""From version bytes to our name for them and the items of the block: 1b had no attributes of its own."""
_TAG: Final = 6
_SIMPLE: Final = 7


class IntegritySignature(Struct, frozen=True):
    """One entry of a block's signature list, as it stands there."""

    item: bytes
    """The entry's CBOR bytes, whole."""
    attributes: bytes = b""
    """The CBOR bytes of its attributes: they are signed as they are. Empty for an entry that is no such pair."""
    byte_attributes: tuple[tuple[str, bytes], ...] = ()
    """Every attribute that is a byte string, in order: the keys among them say what kind of signature this is."""
    signature: bytes = b""


class IntegrityBlock(Struct, frozen=True):
    """An integrity block, read and not verified."""

    version: IntegrityVersion
    web_bundle_id: str | None
    """Whom the bundle claims to be; None in version 1b, which had no place for it."""
    prefix: bytes
    """Its bytes up to the signature list: with an empty list behind them, the block that is signed."""
    signatures: tuple[IntegritySignature, ...]
    length: int
    """Bytes of the whole block; the bundle begins behind them."""

    @property
    def signed(self) -> bytes:
        """What every signature signs of the block: itself, with no signature."""
        return write_block(self.prefix, ())


def integrity_block_parser() -> Parser[IntegrityBlock | None]:
    """Read the integrity block at the first byte of a file; return None where there is none.

    Asks for no byte behind the block, and for ten where there is none. Raises `FormatError` for a block that is cut,
    not deterministic or of another shape, and `VersionError` for a version nobody here knows.
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
    """Write the bytes of a 2b block up to its signature list."""
    items = (_MAGIC_ITEM, cbor.data(b"2b\0\0"), cbor.encode({"webBundleId": web_bundle_id}))
    return cbor.head(cbor.ARRAY, len(items) + 1) + b"".join(items)


def write_block(prefix: bytes, signatures: Sequence[bytes]) -> bytes:
    """Write a whole block: its bytes up to the signature list, and the list of these entries."""
    return prefix + cbor.array(signatures)


def _gather() -> Parser[bytes]:
    """Collect one whole item, however it nests, and not one byte more: a stream may have no more to give yet."""
    block = bytearray()
    open_items = 1
    while open_items:
        start = len(block)
        major, argument = yield from _gather_head(block)
        open_items -= 1
        if major in (cbor.ARRAY, cbor.MAP):
            open_items += argument * (2 if major == cbor.MAP else 1)
        elif major == _TAG:
            open_items += 1
        # Every item has a byte at least: so many cannot fit, and what was claimed is never waited for.
        string = argument if major in (cbor.BYTES, cbor.TEXT) else 0
        if len(block) + string + open_items > MAX_BLOCK_SIZE:
            raise FormatError(f"an integrity block of more than {MAX_BLOCK_SIZE} bytes", step=STEP, offset=start)
        if string:
            yield from _gather_bytes(block, string)
    return bytes(block)


def _gather_head(block: bytearray) -> Parser[tuple[int, int]]:
    start = len(block)
    yield from _gather_bytes(block, 1)
    yield from _gather_bytes(block, cbor.head_size(block[start]) - 1)
    if block[start] >> 5 == _SIMPLE and block[start] & 0x1F < 28:
        return _SIMPLE, 0  # a float's argument is its value; whether it is the shortest is asked with the whole block
    try:
        major, argument, _ = cbor.read_head(bytes(block[start:]))
    except cbor.CborError as error:
        raise FormatError(error.reason, step=_step(error.step), offset=start) from None
    return major, argument


def _gather_bytes(block: bytearray, length: int) -> Parser[None]:
    if not length:
        return
    content = yield ReadRequest(len(block), length)
    if len(content) < length:
        raise FormatError("the file ends inside its integrity block", step=STEP, offset=len(block) + len(content))
    block += content


def _read_block(items: cbor.Items) -> IntegrityBlock:
    count = items.array()
    items.data()
    start = items.position
    version_bytes = items.data()
    if version_bytes not in _VERSIONS:
        raise VersionError(
            f"an integrity block of version {version_bytes!r}, and only 2b (and 1b, to be removed) is known; "
            "sign the bundle again",
            step=STEP,
            offset=start,
        )
    version, expected = _VERSIONS[version_bytes]
    if count != expected:
        raise cbor.CborError(f"an integrity block of version {version} with {count} items, not {expected}", "", 0)
    web_bundle_id = _read_web_bundle_id(items) if version != "1b" else None
    prefix = items.source[: items.position]
    signatures = tuple(_read_signature(items) for _ in range(items.array()))
    return IntegrityBlock(version, web_bundle_id, prefix, signatures, items.position)


def _read_web_bundle_id(items: cbor.Items) -> str:
    """Read the block's attributes; others than the one that is known are signed and otherwise nobody's business."""
    start = items.position
    web_bundle_id = None
    for key in items.entries(items.text):
        if key == "webBundleId":
            web_bundle_id = items.text()
        else:
            items.any()
    if web_bundle_id is None:
        raise cbor.CborError("the integrity block's attributes have no webBundleId", "", start)
    return web_bundle_id


def _read_signature(items: cbor.Items) -> IntegritySignature:
    """Read one entry; what is no pair of attributes and signature is an unknown signature, which is no error."""
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
