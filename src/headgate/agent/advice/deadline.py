"""The time that a fetch has, as one instant that each of its steps asks about; no step has a time of its own."""

import time

__all__ = ["Deadline"]


class Deadline:
    """The instant `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Give the seconds that are left, more than 0; raises `TimeoutError` where none are."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError(str(self))
        return left

    def __str__(self) -> str:
        return f"not within {self._seconds:g} s"
