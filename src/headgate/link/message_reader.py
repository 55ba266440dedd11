"""Reading of whole messages, whatever the number of their frames.

This module knows neither subscriptions nor the content of frames. ZeroMQ stores a message until its last frame has
arrived, so all frames of a message that has begun can be read without waiting.
"""

from headgate.link.sockets import NOBLOCK, Socket

_MAX_DISCARDED = 256
"""Frames discarded per call."""


class MessageReader:
    """Reads messages from `socket`, of each the first `max_frames` frames."""

    def __init__(self, socket: Socket, max_frames: int) -> None:
        self.discarded = 0
        """Frames discarded since the start."""
        self._socket = socket
        self._max_frames = max_frames
        self._discarding = False

    def read(self) -> list[bytes]:
        """Return the next message; empty if the call was spent on the rest of a very long one.

        Raises `zmq.Again` if no message is waiting.
        """
        frames: list[bytes] = []
        if not self._discarding:
            recv = self._socket.recv
            for _ in range(self._max_frames):
                part = recv(NOBLOCK, copy=False)
                frames.append(part.bytes)
                if not part.more:
                    return frames
        self._discard()
        return frames

    def _discard(self) -> None:
        """Discard the rest of a message, as far as one call may."""
        for _ in range(_MAX_DISCARDED):
            self._discarding = self._socket.recv(NOBLOCK, copy=False).more
            self.discarded += 1
            if not self._discarding:
                return
