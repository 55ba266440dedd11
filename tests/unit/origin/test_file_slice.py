import gc
import os

import pytest

from headgate.bundle.files.open_file import OpenFile, file_state
from headgate.origin.response import FileSlice


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    return path


def test_reads_exactly_what_is_asked_for(path):
    file = OpenFile(path)
    assert file.size == 10
    assert file.read_exactly(2, 3) == b"234"
    assert file.read_exactly(9, 1) == b"9"
    assert file.read_exactly(3, 0) == b""
    part = FileSlice(file, 2, 6)
    assert part.read() == b"234567"
    assert part.cut(1, 3).read() == b"34"


def test_a_read_beyond_the_end_is_short_or_an_error(path):
    assert OpenFile(path).read(5, 6) == b"56789"
    assert OpenFile(path).read(11, 1) == b""
    with pytest.raises(OSError, match="written to"):
        OpenFile(path).read_exactly(5, 6)


def test_a_read_in_short_pieces_is_whole(path, monkeypatch):
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, length, offset: read(handle, min(length, 3), offset))
    assert OpenFile(path).read_exactly(1, 8) == b"12345678"
    with pytest.raises(OSError, match="written to"):
        OpenFile(path).read_exactly(5, 6)


def test_a_file_that_is_cut_or_written_to_is_an_error(path):
    for change in (lambda: os.truncate(path, 5), lambda: path.write_bytes(b"9876543210")):
        file = OpenFile(path)
        os.utime(path, ns=(0, file.state.modified + 10**9))  # however coarse the system's clock
        assert not file.is_unchanged()
        change()
        with pytest.raises(OSError, match="written to"):
            file.read_exactly(0, 1)


def test_another_file_at_its_path_does_not_change_it(path, tmp_path):
    file = OpenFile(path)
    other = tmp_path / "other"
    other.write_bytes(b"x")
    other.rename(path)
    assert file.is_unchanged()
    assert file.read_exactly(0, 10) == b"0123456789"
    assert file_state(path) != file.state
    path.unlink()
    assert file.read_exactly(0, 10) == b"0123456789"


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(OSError, match=r"is (a directory|not a regular file)"):
            OpenFile(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        OpenFile(tmp_path / "none")


def test_it_closes_with_its_last_reference(path):
    file = OpenFile(path)
    raw, part = file.raw, FileSlice(file, 0, 1)
    gc.disable()  # no cycle may keep it
    try:
        del file
        assert not raw.closed
        del part
        assert raw.closed
    finally:
        gc.enable()
