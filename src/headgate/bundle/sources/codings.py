"""Content codings: encode gzip, br and zstd, decode those and deflate; `compress` adds variants on Accept-Encoding.

gzip and deflate are in Python; br and zstd are extras, imported on first use. The same bytes give the same result with
the same version of the compressor: the level depends on their number alone, and the time is not written.
"""

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Final, Protocol, cast

import msgspec

from headgate.bundle.files.payloads import PreparedPayload, Spool, SpooledPayload, payload_chunks, prepare_payload
from headgate.bundle.model import Exchange, Version
from headgate.bundle.sources.selection import SkipExchange, essence, with_content_encoding
from headgate.bundle.variants import Axis, write_variants
from headgate.errors import ConfigurationError, MissingExtra

_OUTPUT_SIZE = 1 << 16
"""Approximate maximum of bytes returned at a time: a small body may decode to an enormous one."""
_SNIFF_SIZE = 1 << 12
"""Bytes by which a coding without a magic number is recognized."""
_GZIP = 16 + zlib.MAX_WBITS
_ZSTD = (b"\x28\xb5\x2f\xfd", *(b"%c\x2a\x4d\x18" % first for first in range(0x50, 0x60)))
"""The beginnings of frames and of skippable frames (RFC 8878, 3.1)."""
_BEST_LEVEL_SIZE = 1 << 20
"""Bytes beyond which br and zstd use a lower level: the last tenth would take ten times as long."""
_WINDOW = 23
"""Base-2 logarithm of the maximum window of zstd in HTTP, 8 MB (RFC 9659, section 3)."""

AXIS: Final = "Accept-Encoding"
PLAIN: Final = "identity"
_MIN_SAVED: Final = 64
"""Minimum bytes that a variant must save: its headers and index entry make the bundle longer."""
_MIN_SHARE: Final = 10
"""The part of the payload that a variant must save, as a divisor."""
# fmt: off
_COMPRESSIBLE: Final = frozenset({
    "application/dash+xml", "application/ecmascript", "application/javascript", "application/json", "application/rtf",
    "application/sql", "application/toml", "application/vnd.apple.mpegurl", "application/vnd.ms-fontobject",
    "application/wasm", "application/x-javascript", "application/x-subrip", "application/xml", "application/yaml",
    "font/collection", "font/otf", "font/sfnt", "font/ttf", "image/bmp", "image/vnd.microsoft.icon", "image/x-icon",
    "model/gltf-binary",
})
# fmt: on
"""Media types, besides text, whose formats are not compressed."""
_SUFFIXES: Final = ("+json", "+text", "+xml")


class DecodingError(SkipExchange):
    """A body that is damaged or cut within its content coding."""


class Compressor(Protocol):
    """Compresses chunks."""

    def compress(self, data: bytes | memoryview, /) -> bytes:
        """Compress a chunk, and return what is ready."""

    def flush(self) -> bytes:
        """Return the rest."""


class Decompressor(Protocol):
    """Decompresses chunks, and yields the result in pieces."""

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        """Decompress a chunk; raises `DecodingError`."""

    def is_whole(self) -> bool:
        """Return whether the bytes so far may be complete."""


def parse_codings(content_encoding: str) -> list[str]:
    """Return the codings in a Content-Encoding, in lower case, in the order that they were applied."""
    return [coding.strip().lower() for coding in content_encoding.split(",") if coding.strip()]


def limit_length(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield the chunks of a body; raises `SkipExchange` where there are more than `max_bytes`."""
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > max_bytes:
            raise SkipExchange(f"a body of more than {max_bytes} bytes")
        yield chunk


def require_coding(coding: str) -> None:
    """Raise `ConfigurationError` for an unsupported coding, `MissingExtra` for one that is not installed."""
    if coding not in ENCODERS:
        raise ConfigurationError(f"{coding!r} is not a supported coding; expected one of {', '.join(ENCODERS)}")
    ENCODERS[coding](0)


def encode_chunks(chunks: Iterable[bytes | memoryview], coding: str, *, length: int) -> Iterator[bytes]:
    """Yield `length` bytes in a coding, one of `ENCODERS`."""
    compressor = ENCODERS[coding](length)
    for chunk in chunks:
        if ready := compressor.compress(chunk):
            yield ready
    yield compressor.flush()


def decode_chunks(chunks: Iterable[bytes], coding: str) -> Iterator[bytes]:
    """Yield the bytes without their coding, one of `DECODERS`.

    Bytes that do not begin as the coding does are yielded unchanged: archives decode bodies and leave the header.
    Raises `DecodingError` for a damaged or cut body, and `MissingExtra`.
    """
    chunks = iter(chunks)
    first = b""
    while len(first) < _SNIFF_SIZE and (chunk := next(chunks, None)) is not None:
        first += chunk
    for magic, make in DECODERS[coding]:
        if not first.startswith(magic) or not first:
            continue
        decompressor = make()
        steps = decompressor.decompress(first)
        try:
            beginning = next(steps, b"")
        except DecodingError:
            if magic:
                raise
            continue
        yield beginning
        yield from steps
        for chunk in chunks:
            yield from decompressor.decompress(chunk)
        if not decompressor.is_whole():
            raise DecodingError("cut short within its content coding")
        return
    yield first
    yield from chunks


class _Inflate:
    """gzip, of any number of members, and deflate with or without its wrapper."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inflate = zlib.decompressobj(wbits)

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        while True:
            if self._inflate.eof:
                if self._wbits != _GZIP or not chunk.startswith(b"\x1f"):
                    return  # what follows the end is ignored
                self._inflate = zlib.decompressobj(self._wbits)
            try:
                out = self._inflate.decompress(chunk, _OUTPUT_SIZE)
            except zlib.error as error:
                raise DecodingError("damaged within its content coding") from error
            yield out
            chunk = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if not chunk and len(out) < _OUTPUT_SIZE:
                return

    def is_whole(self) -> bool:
        return self._inflate.eof


class _Unbrotli:
    def __init__(self) -> None:
        brotli = _brotli()
        self._brotli = brotli.Decompressor()
        self._error: type[Exception] = brotli.error

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        while not self._brotli.is_finished():
            try:
                out: bytes = self._brotli.process(chunk, output_buffer_limit=_OUTPUT_SIZE)
            except self._error as error:
                raise DecodingError("damaged within its content coding") from error
            if not out:
                return
            yield out
            chunk = b""

    def is_whole(self) -> bool:
        return bool(self._brotli.is_finished())


class _Unzstd:
    """zstd, of any number of frames."""

    def __init__(self) -> None:
        self._zstd = _zstd()
        self._options = {self._zstd.DecompressionParameter.window_log_max: _WINDOW}
        self._frame = self._zstd.ZstdDecompressor(options=self._options)

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        while True:
            if self._frame.eof:
                self._frame = self._zstd.ZstdDecompressor(options=self._options)
            try:
                out: bytes = self._frame.decompress(chunk, _OUTPUT_SIZE)
            except self._zstd.ZstdError as error:
                raise DecodingError("damaged within its content coding") from error
            yield out
            chunk = self._frame.unused_data if self._frame.eof else b""
            if not chunk and (self._frame.eof or self._frame.needs_input):
                return

    def is_whole(self) -> bool:
        return bool(self._frame.eof)


class _Brotli:
    def __init__(self, length: int) -> None:
        self._brotli = _brotli().Compressor(quality=9 if length > _BEST_LEVEL_SIZE else 11)

    def compress(self, data: bytes | memoryview, /) -> bytes:
        out: bytes = self._brotli.process(data)
        return out

    def flush(self) -> bytes:
        out: bytes = self._brotli.finish()
        return out


def _gzip_compressor(_length: int) -> Compressor:
    # zlib's own gzip wrapper contains neither a time nor a name.
    return zlib.compressobj(9, zlib.DEFLATED, _GZIP)


def _zstd_compressor(length: int) -> Compressor:
    zstd = _zstd()
    name = zstd.CompressionParameter
    # Levels above 19 need more memory in readers than HTTP allows.
    level = 12 if length > _BEST_LEVEL_SIZE else 19
    compressor = zstd.ZstdCompressor(options={name.compression_level: level, name.window_log: _WINDOW})
    # Without it readers reserve a window of 8 MB for ten bytes.
    compressor.set_pledged_input_size(length)
    return cast("Compressor", compressor)


def _brotli() -> ModuleType:
    try:
        import brotli
    except ImportError:
        raise MissingExtra("br", "the content coding br") from None
    return cast("ModuleType", brotli)


def _zstd() -> ModuleType:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise MissingExtra("zstd", "the content coding zstd") from None
    return zstd


ENCODERS: Final[Mapping[str, Callable[[int], Compressor]]] = {
    "gzip": _gzip_compressor,
    "br": _Brotli,
    "zstd": _zstd_compressor,
}
"""The codings that can be encoded; each is called with the number of bytes."""

DECODERS: Final[Mapping[str, Sequence[tuple[bytes | tuple[bytes, ...], Callable[[], Decompressor]]]]] = {
    "gzip": ((b"\x1f\x8b", lambda: _Inflate(_GZIP)),),
    "x-gzip": ((b"\x1f\x8b", lambda: _Inflate(_GZIP)),),
    "deflate": ((b"", lambda: _Inflate(zlib.MAX_WBITS)), (b"", lambda: _Inflate(-zlib.MAX_WBITS))),
    "br": ((b"", _Unbrotli),),
    "zstd": ((_ZSTD, _Unzstd),),
    "identity": (),
}
"""The codings that can be decoded, each with its forms: the magic number, if any, and the decompressor."""


class _SavesTooLittle(Exception):
    """A coding saves too little."""


def compress(exchanges: Iterable[Exchange], codings: Sequence[str], *, version: Version = "b1") -> Iterator[Exchange]:
    """Yield the exchanges, and after each one its variants in those of `codings` (gzip, br, zstd) that save enough.

    A variant must save a tenth and 64 bytes, of text or of another type that is not compressed. The Variants value
    names the codings of its own URL only, the smallest first and `identity` last, so every key has a response.
    Responses with a content coding, with variants or with `no-transform` stay as they are.

    Payloads are encoded into a temporary file. Raises `ConfigurationError` at once for an unknown coding and for b2,
    which does not have variants; `MissingExtra` for br and zstd without their extras.
    """
    wanted = tuple(dict.fromkeys(codings))
    for coding in wanted:
        require_coding(coding)
    if wanted and version == "b2":
        raise ConfigurationError("b2 does not have variants; write b1, or do not compress")
    return _compressed(exchanges, wanted)


def is_compressible(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether a response is of a type that can be compressed, and may be."""
    directives = headers.get("cache-control", "").lower()
    if status == 206 or "content-encoding" in headers or "no-transform" in directives or headers.get("vary") == "*":
        return False
    kind = essence(headers.get("content-type", ""))
    return kind.startswith("text/") or kind in _COMPRESSIBLE or kind.endswith(_SUFFIXES)


def _compressed(exchanges: Iterable[Exchange], codings: Sequence[str]) -> Iterator[Exchange]:
    spool = Spool()
    for exchange in exchanges:
        if exchange.variants is not None or not is_compressible(exchange.status, exchange.headers):
            yield exchange
            continue
        payload, length = prepare_payload(exchange.payload, None, lambda: spool)
        pieces = _pieces(payload, length, codings, spool)
        if isinstance(payload, SpooledPayload):
            # Chunks can be iterated once, and were.
            exchange = msgspec.structs.replace(exchange, payload=payload)  # noqa: PLW2901 - the same one, kept
        yield from _variants(exchange, pieces) if pieces else (exchange,)


def _pieces(payload: PreparedPayload, length: int, codings: Sequence[str], spool: Spool) -> dict[str, SpooledPayload]:
    """Encode a payload, and return the codings that save enough, the smallest first."""
    most = length - max(_MIN_SAVED, length // _MIN_SHARE)
    pieces: dict[str, SpooledPayload] = {}
    for coding in codings if most > 0 else ():
        try:
            pieces[coding] = spool.append(_at_most(most, encode_chunks(payload_chunks(payload), coding, length=length)))
        except _SavesTooLittle:
            continue
    return dict(sorted(pieces.items(), key=lambda item: item[1].length))


def _at_most(length: int, parts: Iterator[bytes]) -> Iterator[bytes]:
    for part in parts:
        length -= len(part)
        if length < 0:
            raise _SavesTooLittle
        yield part


def _variants(exchange: Exchange, pieces: Mapping[str, SpooledPayload]) -> Iterator[Exchange]:
    """Yield the variants of an exchange."""
    variants = write_variants((Axis(AXIS, (*pieces, PLAIN)),))
    headers = {**exchange.headers, "vary": _varying(exchange.headers.get("vary", "")), "variants": variants}
    yield _variant(exchange, {**headers, "variant-key": PLAIN}, variants, PLAIN)
    for coding, piece in pieces.items():
        coded = msgspec.structs.replace(exchange, payload=piece)
        yield _variant(coded, with_content_encoding({**headers, "variant-key": coding}, coding), variants, coding)


def _variant(exchange: Exchange, headers: Mapping[str, str], variants: str, key: str) -> Exchange:
    return msgspec.structs.replace(exchange, headers=headers, variants=variants, variant_key=key)


def _varying(vary: str) -> str:
    names = [name.strip() for name in vary.split(",") if name.strip()]
    return ", ".join(names if AXIS.lower() in map(str.lower, names) else [*names, AXIS])
