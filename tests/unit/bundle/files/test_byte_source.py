"""headgate.bundle.files.byte_source: a file object that several threads read."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor

from headgate.bundle.files.byte_source import open_source


class Interrupted(io.BytesIO):
    """A file whose first reader is stopped between its seek and its read until another thread has moved the file."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.first = threading.Event()
        self.other = threading.Event()

    def seek(self, offset: int, whence: int = 0) -> int:
        position = super().seek(offset, whence)
        if whence == 0 and not self.first.is_set():
            self.first.set()
            # Where readers exclude each other, the other thread never comes this far.
            self.other.wait(0.2)
        elif whence == 0:
            self.other.set()
        return position


def test_threads_that_share_a_file_read_their_own_bytes() -> None:
    file = Interrupted(bytes(range(100)))
    holder = open_source(file)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(holder.read, 10, 5)
        assert file.first.wait(5)
        second = threads.submit(holder.read, 50, 5)
        assert bytes(first.result()) == bytes(range(10, 15))
        assert bytes(second.result()) == bytes(range(50, 55))


def test_short_reads_are_continued() -> None:
    class Short(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(3, size or 0))

    assert bytes(open_source(Short(b"0123456789")).read(1, 8)) == b"12345678"
    assert bytes(open_source(Short(b"0123456789")).read(8, 8)) == b"89"
