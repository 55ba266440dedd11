"""A client's tunnel through an HTTP/2 proxy, which reads and writes DATA frames itself: a library would be too slow."""

import contextlib
import select
import ssl
import struct
from collections.abc import Iterator

import h2.connection
import h2.settings

MAX_WINDOW = (1 << 31) - 1
PAYLOAD = 1 << 14
MAX_SEND_SIZE = 16 * PAYLOAD
HEADER = struct.Struct(">HBBBL")
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8


class Http2Tunnel:
    """The one stream of an HTTP/2 connection, on a TLS socket with h2 selected. Raises `ConnectionError`."""

    def __init__(self, sock: ssl.SSLSocket, authority: str) -> None:
        self.sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._buffer = memoryview(bytearray(1 << 18))
        self._outbox = memoryview(bytearray(MAX_SEND_SIZE // PAYLOAD * (9 + PAYLOAD)))
        self._frame = bytearray()  # an incomplete header, or frame that is not DATA
        self._missing = 0  # bytes of DATA to come
        self._window = self._stream_window = self._first = 65_535
        self._status = 0
        self._connection = h2.connection.H2Connection()
        self._connection.initiate_connection()
        self._connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: MAX_WINDOW})
        self._connection.increment_flow_control_window(MAX_WINDOW - 65_535)
        self._connection.send_headers(1, [(":method", "CONNECT"), (":authority", authority)])
        sock.sendall(self._connection.data_to_send())
        while not self._status:
            for _ in self.read():
                raise ConnectionError("DATA before the response")

    def read(self) -> Iterator[memoryview]:
        """Read once; yield the pieces of DATA that were received."""
        count = self.sock.recv_into(self._buffer)
        if not count:
            raise ConnectionError("the proxy has closed the connection")
        piece = self._buffer[:count]
        while piece:
            if self._missing:
                taken = min(self._missing, len(piece))
                yield piece[:taken]
                self._missing -= taken
            else:
                taken = min(len(piece), self._frame_size() - len(self._frame))
                self._frame += piece[:taken]
                self._take_frame()
            piece = piece[taken:]

    def send(self, payload: memoryview) -> int:
        """Send as much as the windows allow, at least one byte; return how much."""
        while self._window <= 0 or self._stream_window <= 0 or self._has_input():
            for _ in self.read():
                raise ConnectionError("DATA that was not requested")
        count = min(len(payload), self._window, self._stream_window, MAX_SEND_SIZE)
        room, end = self._outbox, 0
        for start in range(0, count, PAYLOAD):
            length = min(PAYLOAD, count - start)
            HEADER.pack_into(room, end, length >> 8, length & 0xFF, DATA, 0, 1)
            room[end + 9 : end + 9 + length] = payload[start : start + length]
            end += 9 + length
        self._window -= count
        self._stream_window -= count
        self.sock.sendall(room[:end])
        return count

    def close(self) -> None:
        """End the stream and the connection."""
        with contextlib.suppress(OSError):
            self.sock.sendall(HEADER.pack(0, 0, DATA, 1, 1))
        self.sock.close()

    def _has_input(self) -> bool:
        return bool(self.sock.pending() or self._poll.poll(0))

    def _frame_size(self) -> int:
        return 9 if len(self._frame) < 9 else 9 + int.from_bytes(self._frame[:3])

    def _take_frame(self) -> None:
        frame = self._frame
        if len(frame) < 9 or (frame[3] != DATA and len(frame) < self._frame_size()):
            return
        if frame[3] == DATA:
            self._missing = int.from_bytes(frame[:3])
        else:
            self._handle_frame(frame[3], frame[4], int.from_bytes(frame[5:9]), bytes(frame[9:]))
        frame.clear()

    def _handle_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            fields = dict(self._connection.decoder.decode(payload))
            self._status = int(fields[":status"])  # type: ignore[index]  # the decoder's types are those of raw=True
            if self._status != 200:
                raise ConnectionError(f"the answer is {self._status}")
        elif kind == SETTINGS and not flags:
            for place in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HL", payload, place)
                if name == h2.settings.SettingCodes.INITIAL_WINDOW_SIZE:
                    self._stream_window += value - self._first
                    self._first = value
            self.sock.sendall(HEADER.pack(0, 0, SETTINGS, 1, 0))
        elif kind == WINDOW_UPDATE and stream:
            self._stream_window += int.from_bytes(payload)
        elif kind == WINDOW_UPDATE:
            self._window += int.from_bytes(payload)
        elif kind in {RST_STREAM, GOAWAY}:
            raise ConnectionError(f"frame {kind}: {payload!r}")
