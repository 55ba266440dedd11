"""Keep a body that arrives in a temporary file of limited size, which is mapped when it is complete."""

import mmap
import tempfile
from contextlib import closing
from typing import BinaryIO, Self

from headgate.agent.bundle.fetcher import Fetcher
from headgate.agent.bundle.range_protocol import UNCODED, Fields, check_served, check_uncoded, unexpected_status
from headgate.errors import FetchError

MAX_BYTES = 1 << 30
"""Default maximum of the bytes of a bundle that are kept."""


class Download:
    """A file that grows; a context manager, after which it is gone unless it was mapped."""

    def __init__(self, url: str, fields: Fields, *, max_bytes: int) -> None:
        self._url = url
        self._max_bytes = max_bytes
        self._received = 0
        stated = fields.get("content-length", "")
        if stated.isascii() and stated.isdigit() and int(stated[:20]) > max_bytes:
            raise self._too_long()
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - this is the context manager

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, chunk: bytes) -> None:
        """Append a chunk; raises `FetchError` where that exceeds the limit."""
        self._received += len(chunk)
        if self._received > self._max_bytes:
            raise self._too_long()
        self._file.write(chunk)

    def mapped(self) -> mmap.mmap | bytes:
        """Return the bytes; their disk space is free again when they are no longer used."""
        self._file.flush()
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self._received else b""

    def _too_long(self) -> FetchError:
        return FetchError(f"{self._url}: longer than the limit of {self._max_bytes} bytes (max_bytes)")


def download_bundle(url: str, *, require_nosniff: bool = True) -> tuple[str, mmap.mmap | bytes]:
    """Fetch the bundle at a URL; return where it is after redirects, and its bytes. Raises `FetchError`."""
    with closing(Fetcher()) as fetcher, fetcher.get(url, UNCODED) as reply:
        check_reply(reply.url, reply.status, reply.fields, require_nosniff=require_nosniff)
        with Download(reply.url, reply.fields, max_bytes=MAX_BYTES) as download:
            for chunk in reply.chunks():
                download.add(chunk)
            return reply.url, download.mapped()


def check_reply(url: str, status: int, fields: Fields, *, require_nosniff: bool) -> None:
    """Refuse a response that is not a whole bundle, served as one; raises `FetchError`."""
    if status != 200:
        raise unexpected_status(url, status, fields)
    check_served(url, fields, require_nosniff=require_nosniff)
    check_uncoded(url, fields)
