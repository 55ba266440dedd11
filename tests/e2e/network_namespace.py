"""A network namespace in which every address leads to this machine, to see where a proxy sends packets.

`run_plan(folder, plan)` runs this module in namespaces of its own: `unshare` creates interfaces, routes and mounts that
no other process uses. There a name server answers as the plan says, one listener at every address accepts all
connections, and every packet is recorded, also one to a forbidden address.
"""

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple

import trustme

from tests.e2e.programs import PATIENCE, Program, headgate
from tests.e2e.proxy_setup import Answer, Client

UNSHARE = ("unshare", "--map-root-user", "--net", "--mount")
NAME_SERVER = "127.0.0.53"
CLIENT_NETWORK = ip_network("127.77.0.0/16")
"""The network of the clients, whose packets are not counted."""
CLIENT, UNUSED_ADDRESS = "127.77.0.1", "127.77.0.9"
TCP, UDP = 6, 17
SYN, SYN_OR_ACK = 0x02, 0x12
PACKET_OUTGOING, PACKET_STATISTICS = 4, 6
A, AAAA, CNAME = 1, 28, 5
OWN_IPV6 = "2606:2800:220:1:248:1893:25c8:1946"
"""An address of an interface. For IPv4, every address is a source address of the system."""


def is_permitted() -> bool:
    """Return whether this user may create such a namespace."""
    trial = "ip link set lo up && mount --bind /etc/hosts /etc/hosts"
    tried = subprocess.run([*UNSHARE, "sh", "-c", trial], capture_output=True, timeout=PATIENCE, check=False)
    return tried.returncode == 0


def run_plan(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Run a plan and return, for each of its proxies by name, an outcome for each of its rows.

    The plan has `dns`, the answers to the 1st, 2nd, ... query of a name, each a list of addresses, where "=other" is an
    alias; `certify`, the names and addresses that an origin shows a certificate for; and `proxies`: the `flags` of
    each, and `rows` of authorities to ask for, where ":PORT" is the port of the origin.
    An outcome has the answer, `reached`, the places that packets were sent to, `queries` of names, and `echoes`.
    """
    command = [*UNSHARE, sys.executable, "-m", "tests.e2e.network_namespace", str(folder)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, input=json.dumps(plan), capture_output=True, text=True, cwd=root, timeout=6 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Packet(NamedTuple):
    """A packet that was sent; `note` is what it carries, if it is not TCP."""

    protocol: int
    source: str
    destination: str
    port: int
    note: bytes = b""


def parse_packet(raw: bytes) -> Packet | None:
    """Parse a packet; None for a TCP packet that does not open a connection."""
    version, options = raw[0] >> 4, (raw[0] & 15) * 4
    if version == 4:
        protocol, addresses, payload = raw[9], raw[12:20], raw[options:]
    else:
        protocol, addresses, payload = raw[6], raw[8:40], raw[40:]
    half = len(addresses) // 2
    source, destination = (str(ip_address(each)) for each in (addresses[:half], addresses[half:]))
    if protocol == TCP:
        (port,) = struct.unpack_from("!H", payload, 2)
        return Packet(TCP, source, destination, port) if payload[13] & SYN_OR_ACK == SYN else None
    port = struct.unpack_from("!H", payload, 2)[0] if protocol == UDP else 0
    return Packet(protocol, source, destination, port, payload[8:])


class PacketRecorder:
    """Records every packet."""

    def __init__(self) -> None:
        # Each packet is recorded when it leaves and again when it arrives.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.settimeout(PATIENCE)
        self._marks = 0

    def destinations(self) -> list[list[Any]]:
        """Return the destinations of other processes' packets since the last call, each once, in order."""
        self._marks += 1
        mark = b"mark %d" % self._marks
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((CLIENT, 0))
            sock.sendto(mark, (UNUSED_ADDRESS, 9))
        places: dict[tuple[int, str, int], None] = {}
        while (packet := self._next()) is None or packet.note != mark:
            if packet is not None and self._counts(packet):
                places[packet.protocol, packet.destination, packet.port] = None
        return [list(place) for place in places]

    def dropped(self) -> int:
        """Return the number of packets that were not recorded."""
        statistics = self._socket.getsockopt(263, PACKET_STATISTICS, 8)  # SOL_PACKET
        return int(struct.unpack("II", statistics)[1])

    def _next(self) -> Packet | None:
        raw, (_, _, direction, *_) = self._socket.recvfrom(1 << 17)
        return parse_packet(raw) if direction == PACKET_OUTGOING else None

    @staticmethod
    def _counts(packet: Packet) -> bool:
        return not any(
            ip_address(each) in CLIENT_NETWORK or each == NAME_SERVER for each in (packet.source, packet.destination)
        )


class NameServer:
    """A name server; `queries` counts those for the addresses of a name: "name A"."""

    def __init__(self, answers: dict[str, list[list[str]]]) -> None:
        self.queries: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        """Queries by name since the start of a proxy: the index of the next answer."""
        self._answers = answers
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((NAME_SERVER, 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            query, peer = self._socket.recvfrom(512)
            self._socket.sendto(self.answer(query), peer)

    def answer(self, query: bytes) -> bytes:
        """Answer one query."""
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode())
            at += 1 + length
        question = query[12 : at + 5]
        name, (kind,) = ".".join(labels).lower(), struct.unpack_from("!H", query, at + 1)
        counted = f"{name} {'A' if kind == A else 'AAAA'}"
        answers = self._answers.get(name)
        found = answers[min(self.turns[counted], len(answers) - 1)] if answers else []
        self.queries[counted] += 1
        self.turns[counted] += 1
        owner, records = question[:-4], []
        for text in found:
            if text.startswith("="):
                alias = b"".join(bytes([len(each)]) + each.encode() for each in text[1:].split(".")) + b"\0"
                records.append(record(owner, CNAME, alias))
                owner = alias
            elif (ip_address(text).version == 4) == (kind == A) and kind in {A, AAAA}:
                records.append(record(owner, kind, ip_address(text).packed))
        flags = 0x8180 if answers else 0x8183  # there is no such name
        return query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + question + b"".join(records)


def record(owner: bytes, kind: int, content: bytes) -> bytes:
    return owner + struct.pack("!HHIH", kind, 1, 0, len(content)) + content


class EchoOrigin:
    """An origin at every address: over TLS it has no advice; it sends all other data back."""

    def __init__(self, authority: trustme.CA, names: list[str]) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(self._tls)
        self._listening = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            sock, _ = self._listening.accept()
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        with sock, suppress(OSError):
            if sock.recv(1, socket.MSG_PEEK) != b"\x16":
                while piece := sock.recv(1 << 16):
                    sock.sendall(piece)
                return
            with self._tls.wrap_socket(sock, server_side=True) as tls:
                tls.recv(1 << 16)
                tls.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


class RowRunner:
    """Requests tunnels for the rows of a plan, one after another, and records the outcomes."""

    def __init__(self, packets: PacketRecorder, names: NameServer, port: int) -> None:
        self._packets = packets
        self._names = names
        self._port = port
        self.outcomes: list[dict[str, Any]] = []

    def authority(self, row: str, proxy: Program) -> str:
        """Return a row with its ports filled in."""
        admin = proxy.ready["admin"].rpartition(":")[2]
        ports = {":PORT": self._port, ":LISTEN": proxy.port, ":ADMIN": admin}
        for word, port in ports.items():
            row = row.replace(word, f":{port}")
        return row

    def begin(self) -> None:
        """Drop what was recorded so far."""
        self._packets.destinations()
        self._names.queries.clear()

    def note(self, status: int, fields: dict[str, str], *, echoes: bool) -> None:
        """Record the outcome of a row."""
        reached, queries = self._packets.destinations(), dict(self._names.queries)
        found = {"status": status, "fields": fields, "echoes": echoes, "reached": reached, "queries": queries}
        self.outcomes.append(found)

    def ask(self, proxy: Program, rows: list[str]) -> None:
        """Request the rows over HTTP/1.1."""
        for row in rows:
            self.begin()
            with Client(proxy.port, source=CLIENT) as client:
                answer: Answer = client.ask(self.authority(row, proxy))
                self.note(*answer, echoes=answer.status == 200 and client.echoes())


def prepare(folder: Path) -> None:
    """Route every address to this machine, and use the name server of this module."""
    for command in (
        "ip link set lo up",
        "ip route add local 0.0.0.0/0 dev lo",
        "ip -6 route add local ::/0 dev lo",
        f"ip -6 addr add {OWN_IPV6}/128 dev lo",
    ):
        subprocess.run(command.split(), check=True)
    for name, content in {"resolv.conf": f"nameserver {NAME_SERVER}\n", "nsswitch.conf": "hosts: files dns\n"}.items():
        file = folder / name
        file.write_text(content)
        subprocess.run(["mount", "--bind", file, os.path.realpath(f"/etc/{name}")], check=True)


@contextmanager
def running(folder: Path, port: int, flags: list[str]) -> Iterator[Program]:
    words = ["--advice-ca", folder / "ca.pem", "--allow-port", port, *flags]
    with headgate(folder, "proxy", *words) as proxy:
        assert proxy.ready
        yield proxy


def main(folder: Path) -> None:
    """Run the plan from stdin and write the outcomes to stdout."""
    plan = json.load(sys.stdin)
    prepare(folder)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    packets, names, origin = PacketRecorder(), NameServer(plan["dns"]), EchoOrigin(authority, plan["certify"])
    found: dict[str, Any] = {"port": origin.port}
    for name, wanted in plan["proxies"].items():
        runner = RowRunner(packets, names, origin.port)
        names.turns.clear()
        with running(folder, origin.port, wanted["flags"]) as proxy:
            runner.ask(proxy, wanted["rows"])
            assert proxy.end() == 0
        found[name] = runner.outcomes
    found["missed"] = packets.dropped()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
