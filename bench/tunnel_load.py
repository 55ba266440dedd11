"""Clients of a proxy: `python -m bench.tunnel_load PROTOCOL WHAT PROXY TARGET AMOUNT`.

PROTOCOL is `http/1.1` or `h2`, both inside TLS, or `direct`: without a proxy. A tunnel is a TLS connection of its own.

- `down` and `up` transfer AMOUNT bytes through one tunnel, from or to a `bulk_target`, and print the seconds and the
  hash of the received bytes.
- `open` opens AMOUNT tunnels, some at once: connect, TLS, CONNECT, six bytes there and back, close. It prints the
  seconds.
- `echo` sends six bytes through one tunnel and back, AMOUNT times, and prints the median of the microseconds.
- `hold` keeps AMOUNT tunnels open; it prints a line once they are, and ends when its input does.
"""

import hashlib
import resource
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from statistics import median
from typing import Protocol

from bench.bulk_target import BLOCK, LONGEST_HASHED
from bench.http2_tunnel import Http2Tunnel

CLIENTS = 8
WORD = b"hello\n"
TWICE = memoryview(BLOCK + BLOCK)


class Tunnel(Protocol):
    """A tunnel, or a direct connection."""

    def read(self) -> Iterator[memoryview]:
        """Read once; yield what was received, valid until the next read."""

    def send(self, payload: memoryview) -> int:
        """Send some of it, at least one byte; returns how much."""

    def close(self) -> None:
        """Close it."""


class PlainTunnel:
    """A socket connected to the target."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = memoryview(bytearray(1 << 18))

    def read(self) -> Iterator[memoryview]:
        """Read once; see `Tunnel`."""
        count = self._sock.recv_into(self._buffer)
        if not count:
            raise ConnectionError("the connection was closed")
        yield self._buffer[:count]

    def send(self, payload: memoryview) -> int:
        """Send some of it; see `Tunnel`."""
        return self._sock.send(payload[: 1 << 18])

    def close(self) -> None:
        """Close it; see `Tunnel`."""
        self._sock.close()


@cache
def _context(protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


def tunnel(protocol: str, proxy: int, target: int) -> Tunnel:
    """Open a tunnel. Raises `ConnectionError`."""
    sock = socket.create_connection(("127.0.0.1", target if protocol == "direct" else proxy))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if protocol == "direct":
        return PlainTunnel(sock)
    inside = _context(protocol).wrap_socket(sock)
    if (inside.version(), inside.selected_alpn_protocol()) != ("TLSv1.3", protocol):
        raise ConnectionError(f"{inside.version()}, {inside.selected_alpn_protocol()}")
    authority = f"127.0.0.1:{target}"
    if protocol == "h2":
        return Http2Tunnel(inside, authority)
    inside.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += inside.recv(4096) or b"closed\r\n\r\n"
    if answer.split(b" ", 2)[1] != b"200":
        raise ConnectionError(answer.decode("latin-1"))
    return PlainTunnel(inside)


def send_all(opened: Tunnel, payload: bytes) -> None:
    """Send all of a short payload."""
    rest = memoryview(payload)
    while rest:
        rest = rest[opened.send(rest) :]


def down(protocol: str, proxy: int, target: int, amount: int) -> str:
    """Receive so many bytes."""
    opened = tunnel(protocol, proxy, target)
    made, is_hashed, rest = hashlib.sha256(), amount <= LONGEST_HASHED, amount
    start = time.perf_counter()
    send_all(opened, b"down %d\n" % amount)
    while rest:
        for piece in opened.read():
            rest -= len(piece)
            if is_hashed:
                made.update(piece)
    seconds = time.perf_counter() - start
    opened.close()
    return f"{seconds} {made.hexdigest()}"


def up(protocol: str, proxy: int, target: int, amount: int) -> str:
    """Send so many bytes."""
    opened = tunnel(protocol, proxy, target)
    start, rest, position = time.perf_counter(), amount, 0
    send_all(opened, b"up %d\n" % amount)
    while rest:
        sent = opened.send(TWICE[position : position + min(rest, len(BLOCK))])
        position = (position + sent) % len(BLOCK)
        rest -= sent
    digest = b""
    while not digest.endswith(b"\n"):
        digest += b"".join(opened.read())
    seconds = time.perf_counter() - start
    opened.close()
    return f"{seconds} {digest.decode().strip()}"


def echo_once(opened: Tunnel) -> None:
    """Send a word, and check that it comes back."""
    send_all(opened, WORD)
    answer = b""
    while len(answer) < len(WORD):
        answer += b"".join(opened.read())
    if answer != WORD:
        raise ConnectionError(f"{answer!r} came back")


def open_many(protocol: str, proxy: int, target: int, amount: int) -> str:
    """Open tunnels and close them."""

    def once(_number: int) -> None:
        opened = tunnel(protocol, proxy, target)
        echo_once(opened)
        opened.close()

    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(once, range(amount)))  # raises what any of them raises
    return str(time.perf_counter() - start)


def echo(protocol: str, proxy: int, target: int, amount: int) -> str:
    """Measure how long a word takes."""
    opened, times = tunnel(protocol, proxy, target), []
    for _ in range(amount):
        start = time.perf_counter()
        echo_once(opened)
        times.append(time.perf_counter() - start)
    opened.close()
    return str(median(times) * 1e6)


def hold(protocol: str, proxy: int, target: int, amount: int) -> str:
    """Keep tunnels open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, amount + 100)), hard))
    tunnels = [tunnel(protocol, proxy, target) for _ in range(amount)]
    print(len(tunnels), flush=True)
    sys.stdin.read()
    for one in tunnels:
        echo_once(one)
    return "held"


WHAT = {"down": down, "up": up, "open": open_many, "echo": echo, "hold": hold}


def main(protocol: str, what: str, *numbers: str) -> None:
    """Run one client."""
    print(WHAT[what](protocol, *(int(number) for number in numbers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
