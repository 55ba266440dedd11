"""A target that sends or receives bytes: `python -m bench.bulk_target PORT`.

For a line `down N` of the client the target sends N bytes, for `up N` it receives N bytes and responds with their hash.
"""

import hashlib
import os
import signal
import socket
import sys

BLOCK = b"".join(hashlib.sha256(number.to_bytes(4)).digest() for number in range(1 << 15))
"""A mebibyte; all data repeats it."""
LONGEST_HASHED = 1 << 26
"""Bytes of the longest transfer that is hashed: for longer ones, hashing would be most of what is measured."""


def digest(count: int) -> str:
    """Return the hash of the first `count` bytes that are sent; of no bytes, if they are too many to hash."""
    made = hashlib.sha256()
    for start in range(0, count if count <= LONGEST_HASHED else 0, len(BLOCK)):
        made.update(BLOCK[: count - start])
    return made.hexdigest()


def serve(sock: socket.socket) -> None:
    """Serve one connection."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            return
        line += byte
    word, count = line.split()
    rest = int(count)
    if word == b"down":
        block, position = memoryview(BLOCK), 0
        while rest:
            sent = sock.send(block[position : position + rest])
            position = (position + sent) % len(block)
            rest -= sent
    else:
        made, buffer = hashlib.sha256(), memoryview(bytearray(1 << 18))
        is_hashed = rest <= LONGEST_HASHED
        while rest:
            got = sock.recv_into(buffer)
            if not got:
                return
            rest -= got
            if is_hashed:
                made.update(buffer[:got])
        sock.sendall(made.hexdigest().encode() + b"\n")
    sock.recv(1)  # the client closes


def main(port: int) -> None:
    """Serve until killed, each connection in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            sock, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                with sock:
                    serve(sock)
                os._exit(0)
            sock.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
