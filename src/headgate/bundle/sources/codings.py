"""Decode the content codings gzip, deflate, br and zstd.

gzip and deflate are in Python; br and zstd are extras, imported on first use.
"""

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Final, Protocol, cast

from headgate.bundle.sources.selection import SkipExchange
from headgate.errors import MissingExtra

_OUTPUT_SIZE = 1 << 16
"""Approximate maximum of bytes returned at a time: a small body may decode to an enormous one."""
_GZIP = 16 + zlib.MAX_WBITS
_WINDOW = 23
"""Base-2 logarithm of the maximum window of zstd in HTTP, 8 MB (RFC 9659, section 3)."""


class DecodingError(SkipExchange):
    """A body that is damaged or cut within its content coding."""


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


def decode_chunks(chunks: Iterable[bytes], coding: str) -> Iterator[bytes]:
    """Yield the bytes without their coding, one of `DECODERS`; an empty body stays empty.

    Raises `DecodingError` for a damaged or cut body, and `MissingExtra`.
    """
    decompressor: Decompressor | None = None
    for chunk in chunks:
        if decompressor is None and chunk:
            decompressor = DECODERS[coding](chunk)
        if decompressor is None:
            yield chunk
        else:
            yield from decompressor.decompress(chunk)
    if decompressor is not None and not decompressor.is_whole():
        raise DecodingError("cut short within its content coding")


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


def _deflate(first: bytes) -> Decompressor:
    """Many servers send deflate without the zlib wrapper, which begins with the compression method 8."""
    return _Inflate(zlib.MAX_WBITS if first[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS)


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


DECODERS: Final[Mapping[str, Callable[[bytes], Decompressor | None]]] = {
    "gzip": lambda _first: _Inflate(_GZIP),
    "x-gzip": lambda _first: _Inflate(_GZIP),
    "deflate": _deflate,
    "br": lambda _first: _Unbrotli(),
    "zstd": lambda _first: _Unzstd(),
    "identity": lambda _first: None,
}
"""The codings that can be decoded, each with the decompressor of a body, which may depend on its first bytes."""
