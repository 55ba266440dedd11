import errno
import io
import os
import stat
import threading

import pytest

from headgate.bundle.files.atomic_file import check_target, open_output
from headgate.bundle.files.payloads import COPY_SIZE
from headgate.errors import ConfigurationError, HeadgateError

PIECES = [b"a", bytes(10), b"b" * COPY_SIZE, b"", b"c", memoryview(b"d" * (COPY_SIZE // 4)), b"e"]
WHOLE = b"".join(PIECES)


def write(target, pieces=PIECES, progress=None):
    with open_output(target, sum(map(len, pieces)), progress) as output:
        for piece in pieces:
            output.put(piece)


def write_and_fail(target, piece):
    with open_output(target, 1) as output:
        output.put(piece)
        raise ZeroDivisionError


class Stream(io.RawIOBase):
    """A raw stream that takes a few bytes at a time; None stands for "come again"."""

    def __init__(self, *takes):
        self.takes = list(takes)
        self.taken = b""

    def writable(self):
        return True

    def write(self, piece):
        most = self.takes.pop(0) if self.takes else len(piece)
        if most is None:
            return None
        self.taken += bytes(piece[:most])
        return min(most, len(piece))


def test_path_receives_every_piece(tmp_path):
    write(tmp_path / "out")
    write(str(tmp_path / "other"))
    assert (tmp_path / "out").read_bytes() == (tmp_path / "other").read_bytes() == WHOLE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_file_has_default_permissions(tmp_path, umask):
    before = os.umask(umask)
    try:
        write(tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o666 & ~umask


def test_replaced_file_keeps_its_permissions_and_its_reader_the_old_bytes(tmp_path):
    (tmp_path / "out").write_bytes(b"before")
    (tmp_path / "out").chmod(0o640)
    with (tmp_path / "out").open("rb") as reader:
        write(tmp_path / "out")
        assert reader.read() == b"before"
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_failure_leaves_the_old_file(tmp_path):
    (tmp_path / "out").write_bytes(b"before")
    for target in (tmp_path / "out", tmp_path / "new"):
        with pytest.raises(ZeroDivisionError):
            write_and_fail(target, bytes(COPY_SIZE))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == b"before"


def test_target_of_a_symbolic_link_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "out")
    for _ in range(2):
        write(tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "folder" / "out").read_bytes() == WHOLE


def test_named_pipe_is_written_as_a_stream(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / "pipe")
    reader.join()
    assert received == [WHOLE]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_stream_is_flushed_and_stays_open(tmp_path):
    with (tmp_path / "out").open("wb") as stream:
        stream.write(b"before ")
        write(stream)
        assert (tmp_path / "out").read_bytes() == b"before " + WHOLE
        write(stream, [b"little"])
        assert (tmp_path / "out").read_bytes().endswith(b"little")
        stream.write(b" after")


def test_short_writes_of_a_raw_stream_are_continued():
    stream = Stream(1, 2, 0, 3)
    write(stream)
    assert stream.taken == WHOLE


def test_non_blocking_stream_is_refused():
    with pytest.raises(HeadgateError, match="is non-blocking and full"):
        write(Stream(1, None))


def test_failure_does_not_write_buffered_pieces_to_a_stream():
    stream = io.BytesIO()
    with pytest.raises(ZeroDivisionError):
        write_and_fail(stream, b"gathered")
    assert stream.getvalue() == b""


def test_small_pieces_are_joined():
    calls = []

    class Counted(io.BytesIO):
        def write(self, piece):
            calls.append(len(piece))
            return super().write(piece)

    target = Counted()
    write(target, [b"x" * 100] * 10_000)
    assert target.getvalue() == b"x" * 1_000_000
    assert len(calls) <= 1_000_000 // COPY_SIZE + 1
    assert max(calls) < COPY_SIZE + 100


def test_progress_reports_bytes_written_and_total():
    reports = []
    write(io.BytesIO(), progress=lambda written, total: reports.append((written, total)))
    assert reports[-1] == (len(WHOLE), len(WHOLE))
    assert [written for written, _ in reports] == sorted({written for written, _ in reports})


def test_unwritable_target_is_reported(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for target in (tmp_path / "out", "/dev/full"):
        with pytest.raises(HeadgateError, match=rf"cannot write {target}: No space left on device"):
            write(target)
    assert list(tmp_path.iterdir()) == []


def test_unusable_target_paths_are_refused(tmp_path):
    check_target(tmp_path / "out")
    check_target("out")
    check_target(io.BytesIO())
    with pytest.raises(ConfigurationError, match="is a directory; name a file in it"):
        check_target(tmp_path)
    with pytest.raises(ConfigurationError, match="does not exist"):
        check_target(tmp_path / "gone" / "out")
