"""The CPU time of the prefetch proxy's HTTP/2 tunnels in TLS, compared with nghttpx in front of squid.

Ours is the whole command with one worker; its target's advice (there is none) is cached after the first CONNECT.
Clients and target run in this process, whose CPU time does not count, so they are simple and slow. Each transfer checks
its own result.
"""

import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import trustme
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes

from bench.measure import Row, compared, in_turns, need, verify
from tests import servers

PEER = "nghttpx before squid"
BYTES = 1 << 27
TUNNELS, MANY = 100, 1_000_000
WINDOW = 1 << 20
BLOCK = bytes(1 << 14)


def cpu(running: Sequence[servers.Server]) -> float:
    """Return the CPU time that the processes of a side used so far, in seconds."""
    return sum(sum(psutil.Process(server.process.pid).cpu_times()[:2]) for server in running)


class Tunnel:
    """A tunnel in a connection of its own."""

    def __init__(self, proxy: int, target: int) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self._socket = context.wrap_socket(socket.create_connection(("127.0.0.1", proxy)))
        self._h2 = H2Connection()
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: WINDOW})
        self._h2.increment_flow_control_window(WINDOW)
        self._h2.send_headers(1, [(":method", "CONNECT"), (":authority", f"127.0.0.1:{target}")])
        self.received, self._is_open = 0, False
        while not self._is_open:
            self._turn()

    def exchange(self, sent: int, expected: int) -> None:
        """Send so many bytes, receive the expected number, and close."""
        while sent:
            size = min(self._h2.local_flow_control_window(1), self._h2.max_outbound_frame_size, sent)
            if size:
                self._h2.send_data(1, BLOCK[:size])
                self._socket.sendall(self._h2.data_to_send())
                sent -= size
            else:
                self._turn()
        while self._is_open and self.received < expected:
            self._turn()
        verify("all bytes have arrived", right=self.received == expected)
        self._socket.close()

    def _turn(self) -> None:
        self._socket.sendall(self._h2.data_to_send())
        for event in self._h2.receive_data(self._socket.recv(1 << 16)):
            if isinstance(event, DataReceived):
                self.received += len(event.data)
                self._h2.acknowledge_received_data(event.flow_controlled_length, 1)
            elif isinstance(event, ResponseReceived):
                verify("a tunnel is opened", right=dict(event.headers)[b":status"] == b"200")
                self._is_open = True
            elif isinstance(event, StreamEnded | StreamReset):
                self._is_open = False


@contextmanager
def target(request: int, answer: int) -> Iterator[int]:
    """Run a target that receives so many bytes, then sends so many; gives its port."""

    def serve(sock: socket.socket) -> None:
        left = request
        with sock, suppress(OSError):
            while left > 0 and (piece := sock.recv(1 << 18)):
                left -= len(piece)
            for _ in range(answer // len(BLOCK)):
                sock.sendall(BLOCK)
            sock.recv(1)  # the end

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[sock], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


def run(rounds: int) -> list[Row]:
    """Measure everything."""
    need("nghttpx", "squid")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        small = len(BLOCK)
        amounts = [(6, small), (6, BYTES), (BYTES, small)]
        targets = [running.enter_context(target(*amount)) for amount in amounts]
        brief, sending, receiving = targets
        pem = folder / "cert.pem"  # with the key
        issued = trustme.CA().issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
        issued.private_key_and_cert_chain_pem.write_to_path(str(pem))
        sides = {
            "ours": [running.enter_context(proxy(folder, targets, pem))],
            "peer": running.enter_context(peers(folder, pem)),
        }

        def row(what: str, most: float, use: Callable[[int], None], scale: float, unit: str) -> Row:
            def cost(side: Sequence[servers.Server]) -> float:
                before = cpu(side)
                use(side[0].port)
                return (cpu(side) - before) * scale

            found = in_turns({name: partial(cost, side) for name, side in sides.items()}, rounds)
            what = f"HTTP/2 tunnel in TLS, CPU of {what}"
            return compared(what, found["ours"], ("≤", most), (PEER, found["peer"]), unit)

        def open_many(port: int) -> None:
            for _ in range(TUNNELS):
                Tunnel(port, brief).exchange(6, small)

        gigabyte = 1e9 / BYTES
        return [
            row("downloads", 1.0, lambda port: Tunnel(port, sending).exchange(6, BYTES), gigabyte, "s/GB"),
            row("uploads", 4.0, lambda port: Tunnel(port, receiving).exchange(BYTES, small), gigabyte, "s/GB"),
            row("a new tunnel", 2.0, open_many, 1e3 / TUNNELS, "ms"),
        ]


@contextmanager
def proxy(folder: Path, targets: Sequence[int], pem: Path) -> Iterator[servers.Server]:
    """Run ours, which may connect to these ports of this machine."""
    port = servers.free_port()
    words = f"--listen 127.0.0.1:{port} --cert {pem} --key {pem} --client-tunnels {MANY}".split()
    words += [word for target in targets for word in ("--allow-port", str(target))]
    words += ["--allow-address=127.0.0.0/8", "--unreachable=permit", "--unreachable-hold=86400"]
    with servers.started([sys.executable, "-m", "headgate", "proxy", *words], port, folder) as server:
        yield server


@contextmanager
def peers(folder: Path, pem: Path) -> Iterator[list[servers.Server]]:
    """Run nghttpx in front of squid, with windows as large as ours."""
    options = [f"--frontend-http2-{name}window-size={WINDOW}" for name in ("", "connection-")]
    options.append(f"--backend-connections-per-host={MANY}")
    with (
        servers.squid(folder, directives="max_filedescriptors 8000") as behind,
        servers.nghttpx(folder, backend=behind.port, key=pem, certificate=pem, options=options) as front,
    ):
        yield [front, behind]
