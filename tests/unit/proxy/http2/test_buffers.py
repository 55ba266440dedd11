"""Buffers: what the system does not take is kept; DATA frames built in place; how far windows may grow."""

import os
import socket
import ssl
import time

import pytest

from headgate.proxy.http2.buffers import READ_SIZE, SendBuffer, SharedBuffers
from headgate.proxy.http2.frames import HEADER_SIZE, MAX_PAYLOAD_SIZE
from headgate.proxy.http2.limits import MAX_CONNECTION_WINDOW
from headgate.proxy.poller import TLS_RECORD_SIZE, LoopState


class Slow:
    """A socket that takes so many bytes in all, then none; as TLS, all of a piece or nothing of it."""

    def __init__(self, most: int, *, whole: bool = False) -> None:
        self.most = most
        self.taken = bytearray()
        self.tried: list[bytes] = []
        self._whole = whole

    def send(self, piece: memoryview) -> int:
        self.tried.append(bytes(piece))
        room = self.most - len(self.taken)
        if self._whole and len(piece) > room:
            raise ssl.SSLWantWriteError
        if not room:
            raise BlockingIOError
        self.taken += piece[:room]
        return min(room, len(piece))


def send_buffer(sock: object) -> tuple[SendBuffer, LoopState]:
    state = LoopState(None, now=0.0)  # type: ignore[arg-type]
    return SendBuffer(sock, state, bytearray()), state  # type: ignore[arg-type]


def test_control_frames_are_sent_with_the_next_flush() -> None:
    sock = Slow(100)
    one, state = send_buffer(sock)
    assert one.flush()
    assert sock.tried == []
    one.control += b"abc"
    assert one.flush()
    assert (bytes(sock.taken), one.is_blocked, len(one.control), state.buffered) == (b"abc", False, 0, 0)


@pytest.mark.parametrize("whole", [False, True])
def test_unsent_data_is_sent_first(whole: bool) -> None:
    payload = os.urandom(300_000)
    sock = Slow(100_000, whole=whole)
    one, state = send_buffer(sock)
    one.send(memoryview(payload))
    taken = len(sock.taken)
    assert one.is_blocked
    assert state.buffered == len(payload) - taken
    one.control += b"behind"
    assert not one.flush()
    sock.most = 1 << 20
    assert one.flush()
    assert bytes(sock.taken) == payload + b"behind"
    assert state.buffered == 0


def test_a_failed_tls_write_is_repeated_with_the_same_bytes() -> None:
    sock = Slow(0, whole=True)
    one, _ = send_buffer(sock)
    one.control += b"first"
    assert not one.flush()
    one.control += b"second"
    assert not one.flush()
    assert sock.tried == [b"first", b"first"]


def test_kept_bytes_are_copied() -> None:
    sock = Slow(0)
    one, _ = send_buffer(sock)
    lent = bytearray(b"mine")
    one.send(memoryview(lent))
    lent[:] = b"next"
    sock.most = 10
    assert one.flush()
    assert sock.taken == b"mine"


def test_discard_drops_everything() -> None:
    one, state = send_buffer(Slow(0))
    one.send(memoryview(b"abc"))
    one.control += b"def"
    one.discard()
    assert (one.is_blocked, len(one.control), state.buffered) == (False, 0, 0)


def test_a_broken_socket_raises() -> None:
    near, far = socket.socketpair()
    far.close()
    one, _ = send_buffer(near)
    one.control += b"abc"
    with pytest.raises(BrokenPipeError):
        one.flush()
    near.close()


def test_everything_arrives_over_real_tls() -> None:
    import trustme

    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    near, far = socket.socketpair()
    near.settimeout(0)
    far.settimeout(0)
    ours = server.wrap_socket(near, server_side=True, do_handshake_on_connect=False)
    theirs = client.wrap_socket(far, server_hostname="localhost", do_handshake_on_connect=False)
    waiting = {ours, theirs}
    while waiting:
        for one in list(waiting):
            try:
                one.do_handshake()
                waiting.remove(one)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                time.sleep(0)
    payload, heard = os.urandom(3_000_000), bytearray()
    said, state = send_buffer(ours)
    said.send(memoryview(payload))
    said.control += b"the end"
    while len(heard) < len(payload) + 7:
        said.flush()
        try:
            heard += theirs.recv(50_000)
        except ssl.SSLWantReadError:
            continue
    assert heard == payload + b"the end"
    assert state.buffered == 0
    ours.close()
    theirs.close()


def test_a_whole_record_fits_after_what_was_read() -> None:
    shared = SharedBuffers()
    assert len(shared.input) == READ_SIZE + TLS_RECORD_SIZE
    assert sum(HEADER_SIZE + len(slot) for slot in shared.data.slots(1 << 30)) == READ_SIZE
    assert TLS_RECORD_SIZE == HEADER_SIZE + MAX_PAYLOAD_SIZE


def test_windows_grow_up_to_a_sum() -> None:
    shared = SharedBuffers()
    assert shared.allowed_growth == MAX_CONNECTION_WINDOW
    shared.window_growth = 31 * MAX_CONNECTION_WINDOW + MAX_CONNECTION_WINDOW // 2
    assert shared.allowed_growth == MAX_CONNECTION_WINDOW // 2
    shared.window_growth += MAX_CONNECTION_WINDOW
    assert shared.allowed_growth < 0
