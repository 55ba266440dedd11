"""A pipe that wakes a poller."""

import os
from contextlib import suppress


class WakePipe:
    """Wakes a poller that waits for `descriptor`, from any thread or a signal handler."""

    def __init__(self) -> None:
        self.descriptor, self._write_descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.is_closed = False
        """Whether `close` was called."""

    def wake(self) -> None:
        """Wake the poller; nothing more happens if it has not been cleared since."""
        with suppress(BlockingIOError):
            os.write(self._write_descriptor, b"\0")

    def clear(self) -> bool:
        """Let the poller wait again; return whether it was woken."""
        try:
            return bool(os.read(self.descriptor, 4_096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close the pipe; can be called twice."""
        if not self.is_closed:
            self.is_closed = True
            os.close(self.descriptor)
            os.close(self._write_descriptor)
