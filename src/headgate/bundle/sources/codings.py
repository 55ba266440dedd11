"""Content codings: gzip, br and zstd to write, those and deflate to read, a chunk at a time.

gzip and deflate come with Python; br and zstd are extras, imported here when they are first asked for. The same bytes
give the same coded bytes wherever the compressor is of the same version: the level depends on how many they are and on
nothing else, and no time is written.
"""

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Final, Protocol, cast

from headgate.errors import ConfigurationError, MissingExtra

__all__ = ["DECODERS", "ENCODERS", "DecodingError", "decode_chunks", "encode_chunks", "require_coding"]

_STEP = 1 << 16
"""Bytes given out at a time, or not many more: a small body may stand for an enormous one."""
_BEGINNING = 1 << 12
"""Bytes that tell a coding which begins with nothing in particular from what is none."""
_GZIP = 16 + zlib.MAX_WBITS
_ZSTD = (b"\x28\xb5\x2f\xfd", *(b"%c\x2a\x4d\x18" % first for first in range(0x50, 0x60)))
"""What a frame begins with, and one to be skipped (RFC 8878, 3.1)."""
_LARGE = 1 << 20
"""Bytes beyond which the last tenth that br and zstd could save is not worth ten and more times the work."""
_WINDOW = 23
"""Base-2 logarithm of the 8 MB that a window of zstd has at most in HTTP (RFC 9659, section 3)."""


class DecodingError(Exception):
    """Bytes that are not in the coding that they are said to be in, or not all of them."""


class Compressor(Protocol):
    """Takes chunks in, and gives what is ready."""

    def compress(self, data: bytes | memoryview, /) -> bytes:
        """Take a chunk."""

    def flush(self) -> bytes:
        """Give the rest."""


class Decompressor(Protocol):
    """Takes chunks in, and gives what comes of them little by little."""

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        """Take a chunk; raises `Undecodable`."""

    def is_whole(self) -> bool:
        """Say whether the bytes so far may be all."""


def require_coding(coding: str) -> None:
    """Raise `ConfigurationError` for a coding that cannot be written, `MissingExtra` for one that is not installed."""
    if coding not in ENCODERS:
        raise ConfigurationError(f"{coding!r} is not a supported coding; expected one of {', '.join(ENCODERS)}")
    ENCODERS[coding](0)


def encode_chunks(chunks: Iterable[bytes | memoryview], coding: str, *, length: int) -> Iterator[bytes]:
    """Yield the bytes, `length` of them, in a coding, one of `CODINGS`."""
    compressor = ENCODERS[coding](length)
    for chunk in chunks:
        if ready := compressor.compress(chunk):
            yield ready
    yield compressor.flush()


def decode_chunks(chunks: Iterable[bytes], coding: str) -> Iterator[bytes]:
    """Yield the bytes without their coding, one of `READABLE`.

    Bytes that do not begin as the coding does are yielded as they are: archives undo a coding and leave its name.
    Raises `Undecodable` for what is damaged further on, or cut short, and `MissingExtra`.
    """
    chunks = iter(chunks)
    first = b""
    while len(first) < _BEGINNING and (chunk := next(chunks, None)) is not None:
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
    """gzip, of any number of members, and deflate with its wrapper or, as some send it, without."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inflate = zlib.decompressobj(wbits)

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        while True:
            if self._inflate.eof:
                if self._wbits != _GZIP or not chunk.startswith(b"\x1f"):
                    return  # what follows the end is no part of it
                self._inflate = zlib.decompressobj(self._wbits)
            try:
                out = self._inflate.decompress(chunk, _STEP)
            except zlib.error as error:
                raise DecodingError("damaged within its content coding") from error
            yield out
            chunk = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if not chunk and len(out) < _STEP:
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
                out: bytes = self._brotli.process(chunk, output_buffer_limit=_STEP)
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
                out: bytes = self._frame.decompress(chunk, _STEP)
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
        self._brotli = _brotli().Compressor(quality=9 if length > _LARGE else 11)

    def compress(self, data: bytes | memoryview, /) -> bytes:
        out: bytes = self._brotli.process(data)
        return out

    def flush(self) -> bytes:
        out: bytes = self._brotli.finish()
        return out


def _gzip_compressor(_length: int) -> Compressor:
    # Level 9, the default method, and a gzip wrapper: zlib's own has neither a time nor a name in it.
    return zlib.compressobj(9, zlib.DEFLATED, _GZIP)


def _zstd_compressor(length: int) -> Compressor:
    zstd = _zstd()
    name = zstd.CompressionParameter
    # Beyond level 19 more memory is asked of readers than HTTP allows.
    level = 12 if length > _LARGE else 19
    compressor = zstd.ZstdCompressor(options={name.compression_level: level, name.window_log: _WINDOW})
    # Without it a reader of ten bytes would have to make room for a window of eight million.
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
"""The codings that can be written; each is given how many bytes it will get."""

DECODERS: Final[Mapping[str, Sequence[tuple[bytes | tuple[bytes, ...], Callable[[], Decompressor]]]]] = {
    "gzip": ((b"\x1f\x8b", lambda: _Inflate(_GZIP)),),
    "x-gzip": ((b"\x1f\x8b", lambda: _Inflate(_GZIP)),),
    "deflate": ((b"", lambda: _Inflate(zlib.MAX_WBITS)), (b"", lambda: _Inflate(-zlib.MAX_WBITS))),
    "br": ((b"", _Unbrotli),),
    "zstd": ((_ZSTD, _Unzstd),),
    "identity": (),
}
"""The codings that can be read, each in the forms that it is found in: how it begins, if that is always the same."""
