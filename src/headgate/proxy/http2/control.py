"""What the `h2` package is asked: to understand what a client says of requests, settings and ends, and to say such.

It never sees DATA, and so none of its windows move; of a stream's end it is told by an empty frame. It sees no
WINDOW_UPDATE, for its windows would run over, and no GOAWAY, for it takes either one, sent or received, for the end of
everything. All three are ours. What it is given was found to be of the right form before (`frames`).
"""

import struct
from collections.abc import Sequence
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event
from h2.exceptions import DenialOfServiceError, ProtocolError
from h2.settings import SettingCodes
from hpack import HPACKError

from headgate.proxy.http1.head import LONGEST_HEAD
from headgate.proxy.http2.frames import (
    DATA,
    END_STREAM,
    LONGEST_BLOCK,
    LONGEST_DATA,
    PREFACE,
    SETTINGS,
    Frame,
    Violation,
    header,
    rst_stream,
    settings,
)

__all__ = ["MOST_STREAMS", "Control"]

MOST_STREAMS: Final = 256
"""Tunnels in one connection, those being decided on included."""

# What HPACK makes of a block may be longer than the block, by the fields it remembers; no more than this, or the
# connection ends. A head that is merely too long is answered.
_LONGEST_LIST: Final = 2 * LONGEST_BLOCK
_ANNOUNCED: Final = settings(
    {
        SettingCodes.ENABLE_PUSH: 0,
        SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
        SettingCodes.MAX_FRAME_SIZE: LONGEST_DATA,
        SettingCodes.MAX_HEADER_LIST_SIZE: LONGEST_HEAD,
    }
)
_KNOWN: Final = frozenset(SettingCodes)
_CONFIGURATION: Final = H2Configuration(
    client_side=False,
    header_encoding=False,
    # What is wrong with one head is told to whom it concerns; to h2 it would be the end of the connection.
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


class _Connection(H2Connection):
    """One that remembers few of the streams that are over, and leaves counting the others to us."""

    MAX_CLOSED_STREAMS = 128
    DEFAULT_MAX_HEADER_LIST_SIZE = _LONGEST_LIST

    def __init__(self) -> None:
        super().__init__(_CONFIGURATION)
        self.local_settings.update({SettingCodes.MAX_CONCURRENT_STREAMS: 1 << 30})
        self.local_settings.acknowledge()
        self.max_inbound_frame_size = LONGEST_BLOCK


class Control:
    """The half of a connection that is about anything but DATA. What it says is put into `out`, for the client."""

    __slots__ = ("_h2", "_out")

    def __init__(self, out: bytearray) -> None:
        self._h2 = _Connection()
        self._h2.initiate_connection()
        self._h2.clear_outbound_data_buffer()  # it would tell what it was made to believe
        self._h2.receive_data(PREFACE)
        self._out = out
        out += _ANNOUNCED

    @property
    def latest(self) -> int:
        """The number of the latest stream that the client has begun."""
        return self._h2.highest_inbound_stream_id

    @property
    def first_window(self) -> int:
        """Bytes that the client lets a new stream send."""
        return self._h2.remote_settings.initial_window_size

    def receive(self, frame: Frame) -> list[Event]:
        """Hear a frame; returns what it means. Raises `Violation`."""
        payload = _understood(frame.payload) if frame.type == SETTINGS else frame.payload
        try:
            events = self._h2.receive_data(header(len(payload), *frame[:3]) + payload)
        except ProtocolError as error:
            # 4.3: h2 knows no code of its own for a head that cannot be decompressed.
            is_hpack = isinstance(error.__cause__, HPACKError) and not isinstance(error, DenialOfServiceError)
            code = ErrorCodes.COMPRESSION_ERROR if is_hpack else ErrorCodes(error.error_code)
            raise Violation(code, f"a frame of type {frame.type} is wrong, or comes at a wrong time") from error
        self._say()
        return events

    def hear_end(self, stream: int) -> None:
        """Hear that the client has ended a stream, in a frame that h2 did not see. Raises `Violation`."""
        self.receive(Frame(DATA, END_STREAM, stream, 0, b""))

    def say_end(self, stream: int) -> None:
        """Say the end of a stream."""
        self._h2.end_stream(stream)
        self._say()

    def answer(self, stream: int, status: int, fields: Sequence[tuple[str, str]], *, is_all: bool = True) -> None:
        """Answer a request; `is_all` says that no DATA follows."""
        named = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        self._h2.send_headers(stream, [(b":status", b"%d" % status), *named], end_stream=is_all)
        self._say()

    def reset(self, stream: int, code: ErrorCodes) -> None:
        """Reset a stream."""
        try:
            self._h2.reset_stream(stream, code)
        except ProtocolError:  # to h2 it is over already
            self._out += rst_stream(stream, code)
        self._say()

    def _say(self) -> None:
        self._out += self._h2.data_to_send()


def _understood(values: memoryview | bytes) -> bytes:
    """Leave the settings out that nobody knows (6.5.2): h2 would remember each."""
    pairs = [values[start : start + 6] for start in range(0, len(values), 6)]
    return b"".join(pair for pair in pairs if struct.unpack_from(">H", pair)[0] in _KNOWN)
