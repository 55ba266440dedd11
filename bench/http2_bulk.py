"""A client that moves bytes through one tunnel of HTTP/2: `python -m bench.http2_bulk PORT TARGET down|up BYTES`.

Prints the seconds it took, from the request to the last byte, and the hash of what arrived; see `bulk_target`.
"""

import hashlib
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator

import h2.connection
import h2.settings

from bench.bulk_target import BLOCK, LONGEST_HASHED

__all__ = ["Bulk", "main"]

WIDEST = (1 << 31) - 1
PAYLOAD = 1 << 14
TWICE = memoryview(BLOCK + BLOCK)
HEADER = struct.Struct(">HBBBL")


class Bulk:
    """One connection with one tunnel. Heads go through h2; bulk past it, so that the client is not what is measured."""

    def __init__(self, port: int, target: int) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert self.sock.selected_alpn_protocol() == "h2"
        self.buffer = memoryview(bytearray(1 << 18))
        self.rest = bytearray()  # of a frame whose header is not whole, or that is no DATA
        self.missing = 0  # bytes of DATA to come
        self.window = self.stream_window = self.first = 65_535
        self.status = 0
        self._talk = h2.connection.H2Connection()
        self._talk.initiate_connection()
        self._talk.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WIDEST})
        self._talk.increment_flow_control_window(WIDEST - 65_535)
        self._talk.send_headers(1, [(":method", "CONNECT"), (":authority", f"127.0.0.1:{target}")])
        self.sock.sendall(self._talk.data_to_send())
        while not self.status:
            assert not b"".join(self.read())

    def read(self) -> Iterator[memoryview]:
        """Read once; yield what of DATA came, and take note of the rest."""
        count = self.sock.recv_into(self.buffer)
        assert count, "the proxy has gone"
        piece = self.buffer[:count]
        while piece:
            if self.missing:
                taken = min(self.missing, len(piece))
                yield piece[:taken]
                self.missing -= taken
                piece = piece[taken:]
                continue
            need = 9 if len(self.rest) < 9 else 9 + self.length()
            taken = need - len(self.rest)
            self.rest += piece[:taken]
            piece = piece[taken:]
            if len(self.rest) >= 9 and self.rest[3] == 0:
                self.missing = self.length()
                self.rest.clear()
            elif len(self.rest) >= 9 and len(self.rest) == 9 + self.length():
                self.hear()
                self.rest.clear()

    def length(self) -> int:
        """Say how long the payload of the frame at hand is."""
        return int.from_bytes(self.rest[:3])

    def hear(self) -> None:
        """Take a frame that is no DATA."""
        kind, flags, stream = self.rest[3], self.rest[4], int.from_bytes(self.rest[5:9])
        payload = bytes(self.rest[9:])
        if kind == 1:
            self.status = int(dict(self._talk.decoder.decode(payload))[":status"])
            assert self.status == 200, self.status
        elif kind == 4 and not flags:
            for place in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HL", payload, place)
                if name == 4:
                    self.stream_window += value - self.first
                    self.first = value
            self.sock.sendall(b"\0\0\0\4\1\0\0\0\0")
        elif kind == 8 and stream:
            self.stream_window += int.from_bytes(payload)
        elif kind == 8:
            self.window += int.from_bytes(payload)
        elif kind in {3, 7}:
            raise AssertionError(f"frame {kind}: {payload!r}")

    def down(self, count: int) -> str:
        """Have the target send so many bytes; returns their hash."""
        self.put(f"down {count}\n".encode())
        made, is_hashed = hashlib.sha256(), count <= LONGEST_HASHED
        while count:
            for piece in self.read():
                count -= len(piece)
                if is_hashed:
                    made.update(piece)
        return made.hexdigest()

    def up(self, count: int) -> str:
        """Send so many bytes to the target; returns the hash that it tells."""
        self.put(f"up {count}\n".encode())
        position = 0
        room = memoryview(bytearray(16 * (9 + PAYLOAD)))
        while count:
            most = min(count, self.window, self.stream_window, 16 * PAYLOAD)
            if most <= 0 or (self.sock.pending() or select.select([self.sock], [], [], 0)[0]):
                assert not b"".join(self.read())
                continue
            end = 0
            for start in range(0, most, PAYLOAD):
                length = min(PAYLOAD, most - start)
                HEADER.pack_into(room, end, length >> 8, length & 0xFF, 0, 0, 1)
                room[end + 9 : end + 9 + length] = TWICE[position : position + length]
                position = (position + length) % len(BLOCK)
                end += 9 + length
            self.window -= most
            self.stream_window -= most
            count -= most
            self.sock.sendall(room[:end])
        answer = b""
        while not answer.endswith(b"\n"):
            answer += b"".join(self.read())
        return answer.decode().strip()

    def put(self, payload: bytes) -> None:
        """Send a little."""
        self.window -= len(payload)
        self.stream_window -= len(payload)
        self.sock.sendall(HEADER.pack(0, len(payload), 0, 0, 1) + payload)


def main(port: int, target: int, word: str, count: int) -> None:
    """Move the bytes, and tell."""
    bulk = Bulk(port, target)
    begun = time.perf_counter()
    told = bulk.down(count) if word == "down" else bulk.up(count)
    print(time.perf_counter() - begun, told)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
