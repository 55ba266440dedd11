"""Clients of a proxy, each a program of its own: `python -m bench.tunnel_load WHAT PROXY TARGET AMOUNT`.

- `down` and `up` move AMOUNT bytes through one tunnel, from or to a `bulk_target`, and print the seconds that it took
  and the hash of what arrived.
- `open` opens tunnels one after another on each of some connections, for AMOUNT seconds: connect, CONNECT, six bytes
  there and back, close. It prints how many there were per second.
- `echo` sends six bytes through one tunnel and back, AMOUNT times, and prints the 99th percentile in microseconds; with
  a PROXY of 0 the target is asked itself, and it prints the median.
- `shake` makes TLS connections, and closes them, for AMOUNT seconds; it prints how many there were per second.
- `hold` keeps AMOUNT tunnels open; it prints a line once they are, and ends when its input does.
"""

import hashlib
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles

from bench.bulk_target import BLOCK, LONGEST_HASHED

__all__ = ["main"]

CLIENTS = 8
WORD = b"hello\n"


def tunnel(proxy: int, target: int) -> socket.socket:
    """Open a tunnel, or connect to the target itself where there is no proxy."""
    sock = socket.create_connection(("127.0.0.1", proxy or target))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if proxy:
        sock.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (target, target))
        answer = sock.recv(4096)
        while not answer.endswith(b"\r\n\r\n"):
            answer += sock.recv(4096)
        if answer.split(b" ", 2)[1] != b"200":
            raise ConnectionError(answer.decode("latin-1"))
    return sock


def down(proxy: int, target: int, amount: int) -> str:
    """Receive so many bytes."""
    with tunnel(proxy, target) as sock:
        is_hashed = amount <= LONGEST_HASHED
        made, buffer, rest = hashlib.sha256(), memoryview(bytearray(1 << 18)), amount
        began = time.perf_counter()
        sock.sendall(b"down %d\n" % amount)
        while rest:
            got = sock.recv_into(buffer)
            if not got:
                raise ConnectionError(f"{rest} bytes are missing")
            rest -= got
            if is_hashed:
                made.update(buffer[:got])
        return f"{time.perf_counter() - began} {made.hexdigest()}"


def up(proxy: int, target: int, amount: int) -> str:
    """Send so many bytes."""
    with tunnel(proxy, target) as sock:
        began, rest, block, position = time.perf_counter(), amount, memoryview(BLOCK), 0
        sock.sendall(b"up %d\n" % amount)
        while rest:
            sent = sock.send(block[position : position + rest])
            position = (position + sent) % len(block)
            rest -= sent
        told = sock.makefile().readline().strip()
        return f"{time.perf_counter() - began} {told}"


def repeated(once: Callable[[], None], amount: int) -> str:
    """Do something for so many seconds, in some threads at once; says how often per second, unless once was in vain."""
    began = time.perf_counter()

    def go_on(_number: int) -> int:
        count = 0
        while time.perf_counter() < began + amount:
            once()
            count += 1
        return count

    with ThreadPoolExecutor(CLIENTS) as threads:
        total = sum(threads.map(go_on, range(CLIENTS)))
    return str(total / (time.perf_counter() - began))


def opened(proxy: int, target: int, amount: int) -> str:
    """Open tunnels and close them."""

    def once() -> None:
        with tunnel(proxy, target) as sock:
            echo_once(sock)

    return repeated(once, amount)


def echo_once(sock: socket.socket) -> None:
    """Send a word, and see that it comes back."""
    sock.sendall(WORD)
    answer = sock.recv(100)
    while len(answer) < len(WORD):
        answer += sock.recv(100)
    if answer != WORD:
        raise ConnectionError(f"{answer!r} came back")


def echo(proxy: int, target: int, amount: int) -> str:
    """Measure how long a word takes."""
    times = []
    with tunnel(proxy, target) as sock:
        for _ in range(amount):
            began = time.perf_counter()
            echo_once(sock)
            times.append(time.perf_counter() - began)
    return str((quantiles(times, n=100)[-1] if proxy else median(times)) * 1e6)


def shaken(proxy: int, _target: int, amount: int) -> str:
    """Make TLS connections."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # what the client spends is not what is measured
    context.set_alpn_protocols(["http/1.1"])

    def once() -> None:
        with context.wrap_socket(socket.create_connection(("127.0.0.1", proxy))) as sock:
            if sock.version() != "TLSv1.3" or sock.selected_alpn_protocol() != "http/1.1":
                raise ConnectionError(f"{sock.version()}, {sock.selected_alpn_protocol()}")

    return repeated(once, amount)


def hold(proxy: int, target: int, amount: int) -> str:
    """Keep tunnels open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, amount + 100)), hard))
    sockets = [tunnel(proxy, target) for _ in range(amount)]
    print(len(sockets), flush=True)
    sys.stdin.read()
    for sock in sockets:
        echo_once(sock)
    return "held"


WHAT = {"down": down, "up": up, "open": opened, "echo": echo, "shake": shaken, "hold": hold}


def main(what: str, *numbers: str) -> None:
    """Run one client."""
    print(WHAT[what](*(int(number) for number in numbers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
