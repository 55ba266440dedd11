import errno
import gc
import os
import tempfile
import weakref
from collections.abc import Iterator

import pytest

from headgate.bundle.files.payloads import (
    CHUNK_SIZE,
    COPY_SIZE,
    SizedChunks,
    Spool,
    SpooledPayload,
    payload_chunks,
    payload_length,
    prepare_payload,
)
from headgate.errors import ConfigurationError, HeadgateError


def kept(payload):
    waiting = prepare_payload(payload, Spool)
    return waiting, payload_length(waiting)


def copied(payload):
    return b"".join(bytes(chunk) for chunk in payload_chunks(payload))


@pytest.mark.parametrize("payload", [b"", b"abc", bytes(1_000_000)])
def test_bytes_are_kept_by_reference(payload):
    waiting, length = kept(payload)
    assert waiting is payload
    assert length == len(payload)
    assert copied(waiting) == payload


def test_mutable_payloads_are_copied():
    changing = bytearray(b"before")
    for payload in (changing, memoryview(changing), memoryview(changing)[::2]):
        meant = bytes(payload)
        waiting, length = kept(payload)
        changing[:] = b"after!"
        assert (copied(waiting), length) == (meant, len(meant))
        changing[:] = b"before"


@pytest.mark.parametrize("size", [10, COPY_SIZE, 2 * COPY_SIZE + 5])
@pytest.mark.parametrize("change", [-1, 1, -10, COPY_SIZE])
def test_changed_file_is_reported(tmp_path, size, change):
    path = tmp_path / "payload"
    path.write_bytes(bytes(size))
    waiting, _ = kept(path)
    path.write_bytes(bytes(size + change))
    with pytest.raises(HeadgateError, match=rf"payload .* {size}( bytes)?, its length when it was added"):
        copied(waiting)


@pytest.mark.parametrize("kind", ["file", "link", "fifo"])
def test_file_that_is_replaced_is_not_followed(tmp_path, kind):
    path, secret = tmp_path / "payload", tmp_path / "secret"
    for file in (path, secret):
        file.write_bytes(b"as long")
    waiting, _ = kept(path)
    path.rename(tmp_path / "moved")
    {"file": lambda: secret.rename(path), "link": lambda: path.symlink_to(secret), "fifo": lambda: os.mkfifo(path)}[
        kind
    ]()
    with pytest.raises(HeadgateError, match=r"was replaced after it was added|Too many levels of symbolic links"):
        copied(waiting)


def test_removed_file_is_reported(tmp_path):
    path = tmp_path / "payload"
    with pytest.raises(HeadgateError, match=r"cannot read .*payload: No such file"):
        kept(path)
    path.write_bytes(b"x")
    waiting, _ = kept(path)
    path.unlink()
    with pytest.raises(HeadgateError, match=r"cannot read .*payload: No such file"):
        copied(waiting)


def test_directory_and_named_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigurationError, match="is not a regular file"):
            kept(path)


def test_chunks_are_spooled():
    spools = []

    def spool():
        spools.append(Spool())
        return spools[-1]

    waiting = prepare_payload((b"ab", b"", bytearray(b"c"), memoryview(b"d")), spool)
    assert isinstance(waiting, SpooledPayload)
    assert (waiting.length, copied(waiting), len(spools)) == (4, b"abcd", 1)
    assert prepare_payload(b"x", spool) == b"x"
    assert len(spools) == 1


@pytest.mark.parametrize(("promised", "fault"), [(2, "has more than 2 bytes"), (4, "ends 1 bytes short of 4")])
def test_wrong_length_is_reported(promised, fault):
    with pytest.raises(HeadgateError, match=fault):
        copied(SizedChunks([b"ab", b"c"], promised))
    assert copied(SizedChunks([b"ab", b"c"], 3)) == b"abc"


def test_spooled_payload_can_be_appended_to_its_own_spool() -> None:
    spool = Spool()
    piece = spool.append([b"abc"])
    assert b"".join(spool.append(piece)) == b"abc"


def test_failed_chunks_leave_nothing_in_the_spool() -> None:
    def failing() -> Iterator[bytes]:
        yield b"lost"
        raise ZeroDivisionError

    spool = Spool()
    with pytest.raises(ZeroDivisionError):
        spool.append(failing())
    assert b"".join(spool.append([b"x"])) == b"x"
    assert spool.append([b"y"]).offset == 1


def test_spool_file_is_closed_with_its_last_payload() -> None:
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


def test_short_reads_from_the_spool_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(2 * CHUNK_SIZE + 7)
    piece = Spool().append([content])
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, length, offset: read(handle, min(length, 999), offset))
    assert b"".join(piece) == content
