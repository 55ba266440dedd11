"""The accounting that the benchmarks of the master's bus send, and the program that sends it.

``python -m bench.bus_load WAY PORT`` connects to the accounting port of a master on loopback, sends everything as fast
as the other side reads, and prints the seconds that it computed. It speaks ZMTP 3.0 over a plain socket from bytes made
beforehand, so that one system call hands over thousands of messages: TCP makes it wait for the receiver, never the
receiver for it, and nothing is dropped.
"""

import socket
import sys
import time
from collections.abc import Sequence

from headgate.limit import Accounting, Domain, Rule
from headgate.limit.messages import encode_accounting
from headgate.link.batch import MAX_RECORDS, batch_topic, encode_batch, to_record
from headgate.release import Status

DOMAIN = Domain("api", (Rule(60, 60_000, 100),))
NOW = 1_700_000_100.0
"""When all of it arrives: a fixed instant, so that every release can be foretold."""
MESSAGES = 300_000
_IDENTIFIERS, _HOT = 12_000, 150
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_SUBSCRIPTION = b"\x00\x01\x01"
_READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"


def accountings() -> list[Accounting]:
    """Give the verdicts: nine in ten accepted, over many identifiers; a few go on past the burst and are refused.

    The refused are what gatekeepers that obey send once an identifier is held.
    """
    hot = [b"198.51.100.%d" % number for number in range(_HOT)]
    cold = [b"10.0.%d.%d" % divmod(number, 250) for number in range(_IDENTIFIERS)]
    verdicts = []
    for number in range(MESSAGES):
        received = NOW - 1.0 + number * 0.001 % 1.0
        if number % 10:
            name, status = cold[number * 7 % _IDENTIFIERS], Status.ACCEPTED
        else:
            turn, at = divmod(number // 10, _HOT)
            name, status = hot[at], Status.ACCEPTED if turn < DOMAIN.rules[0].burst + 5 else Status.REJECTED
        verdicts.append(Accounting(DOMAIN.name, status, name, received, received))
    return verdicts


def stream(way: str) -> bytes:
    """Give everything as ZMTP bytes: `frames`, the document's, or `batch`."""
    verdicts = accountings()
    if way == "frames":
        return b"".join(map(_message, map(encode_accounting, verdicts)))
    pieces = (verdicts[at : at + MAX_RECORDS] for at in range(0, len(verdicts), MAX_RECORDS))
    name = batch_topic(DOMAIN.name)
    return b"".join(_message([name, encode_batch(map(to_record, piece))]) for piece in pieces)


def _message(frames: Sequence[bytes]) -> bytes:
    last = len(frames) - 1
    return b"".join(_frame(frame, more=at < last) for at, frame in enumerate(frames))


def _frame(frame: bytes, *, more: bool) -> bytes:
    if len(frame) > 255:
        return bytes([2 + more]) + len(frame).to_bytes(8, "big") + frame
    return bytes([more, len(frame)]) + frame


def _read(peer: socket.socket, count: int) -> bytes:
    taken = b""
    while len(taken) < count:
        taken += peer.recv(count - len(taken))
    return taken


def main(way: str, port: int) -> None:
    """Shake hands, wait for the first subscription, send, and wait until the receiver hangs up."""
    everything = memoryview(stream(way))
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(_GREETING)
        _read(peer, len(_GREETING))
        peer.sendall(bytes([4, len(_READY)]) + _READY)
        _read(peer, _read(peer, 2)[1])
        _read(peer, len(_SUBSCRIPTION))
        computed = time.process_time()
        peer.sendall(everything)
        print(time.process_time() - computed)
        while peer.recv(65_536):
            pass


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
