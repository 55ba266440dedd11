"""Decode the content codings gzip and deflate, which some servers send without being asked."""

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from headgate.bundle.sources.selection import SkipExchange

_OUTPUT_SIZE = 1 << 16
"""Approximate maximum of bytes returned at a time: a small body may decode to an enormous one."""
_GZIP = 16 + zlib.MAX_WBITS


class DecodingError(SkipExchange):
    """A body that is damaged or cut within its content coding."""


def parse_codings(content_encoding: str) -> list[str]:
    """Return the codings in a Content-Encoding, in lower case, in the order that they were applied."""
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    return [coding for coding in codings if coding not in ("", "identity")]


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

    Raises `DecodingError` for a damaged or cut body.
    """
    inflate = None
    for chunk in filter(None, chunks):
        if inflate is None:
            wbits = _raw_or_zlib(chunk) if coding == "deflate" else _GZIP
            inflate = zlib.decompressobj(wbits)
        left, out = chunk, b""
        while left or len(out) == _OUTPUT_SIZE:
            if inflate.eof:
                if wbits != _GZIP or not left.startswith(b"\x1f"):
                    break  # what follows the end is ignored
                inflate = zlib.decompressobj(wbits)
            try:
                out = inflate.decompress(left, _OUTPUT_SIZE)
            except zlib.error as error:
                raise DecodingError("damaged within its content coding") from error
            yield out
            left = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    if inflate is not None and not inflate.eof:
        raise DecodingError("cut short within its content coding")


def _raw_or_zlib(first: bytes) -> int:
    """Many servers send deflate without the zlib wrapper, which begins with the compression method 8."""
    return zlib.MAX_WBITS if first[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS


DECODERS: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""The codings that can be decoded."""
