import errno
import gc
import os
import tempfile
import weakref
from collections.abc import Iterator

import pytest

from headgate.bundle.files.payloads import CHUNK_SIZE, Spool
from headgate.errors import HeadgateError


def test_pieces_are_read_any_number_of_times() -> None:
    spool = Spool()
    long = os.urandom(3 * CHUNK_SIZE + 1)
    pieces = [spool.append([b"a", b"", b"bc"]), spool.append([]), spool.append([long]), spool.append([b"d"])]
    for _ in range(2):
        assert [b"".join(piece) for piece in pieces] == [b"abc", b"", long, b"d"]
    assert [piece.length for piece in pieces] == [3, 0, len(long), 1]
    assert max(map(len, pieces[2])) == CHUNK_SIZE


def test_a_piece_can_be_kept_in_its_own_spool() -> None:
    spool = Spool()
    piece = spool.append([b"abc"])
    assert b"".join(spool.append(piece)) == b"abc"


def test_of_chunks_that_fail_nothing_is_kept() -> None:
    def failing() -> Iterator[bytes]:
        yield b"lost"
        raise ZeroDivisionError

    spool = Spool()
    with pytest.raises(ZeroDivisionError):
        spool.append(failing())
    assert b"".join(spool.append([b"x"])) == b"x"
    assert spool.append([b"y"]).offset == 1


def test_the_file_goes_with_the_last_piece() -> None:
    spool = Spool()
    piece = spool.append([b"abc"])
    handle, gone = spool._file, weakref.ref(spool)
    del spool
    assert b"".join(piece) == b"abc"
    del piece
    gc.collect()
    assert gone() is None
    assert handle.closed


def test_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spool = Spool()
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(HeadgateError, match="No space left on device; set TMPDIR"):
        spool.append([b"x"])
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(HeadgateError, match="No space left on device; set TMPDIR"):
        Spool()


def test_what_is_written_by_and_by_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, view, offset: write(handle, view[:2], offset))
    assert b"".join(Spool().append([b"abcdefg"])) == b"abcdefg"


def test_what_is_read_in_short_pieces_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(2 * CHUNK_SIZE + 7)
    piece = Spool().append([content])
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, length, offset: read(handle, min(length, 999), offset))
    assert b"".join(piece) == content
