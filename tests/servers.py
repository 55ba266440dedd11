"""Real servers for tests: whether their programs are installed, and how to start and stop them on loopback.

Every server listens on 127.0.0.1, on a port the system chose, keeps its files in a temporary folder, and is stopped by
its process id.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.origin.sidecar.nginx_conf import LUA_MODULE, MODULE_FOLDERS

if TYPE_CHECKING:
    from redis import Redis

    from tests.forked import Forked

ROOT = Path(__file__).resolve().parent.parent
NODE_MODULES = ROOT / ".servers" / "node" / "node_modules"
PATIENCE = 60.0  # seconds that a server may take to listen, or to stop; only ever reached by a failing test


@dataclass(frozen=True)
class Server:
    """A started server: where it listens, its process, and the file that holds what it printed."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """Its address for HTTP, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    def output(self) -> str:
        """What it has printed so far, standard error included."""
        return self.log.read_text(errors="replace")


def find_program(name: str) -> str | None:
    """Path of an installed program, in Debian's folders for servers and this Python's too; None when it is missing."""
    folders = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", str(Path(sys.executable).parent)]
    return shutil.which(name, path=os.pathsep.join(folders))


NGINX_MODULES = {"nginx-lua": LUA_MODULE, "nginx-stream": "ngx_stream_module.so"}


def nginx_module(server: str) -> Path | None:
    """Return the file of a module of nginx; None if it is missing."""
    paths = (folder / NGINX_MODULES[server] for folder in MODULE_FOLDERS)
    return next((path for path in paths if path.exists()), None)


def is_present(server: str) -> bool:
    """Whether a server named in `@pytest.mark.needs` is installed.

    "node-wbn" is the package wbn of Node.js, "nginx-lua" and "nginx-stream" are nginx with one of its modules.
    """
    program, _, package = server.partition("-")
    if server in NGINX_MODULES:
        return find_program("nginx") is not None and nginx_module(server) is not None
    if program == "node" and package:
        return find_program("node") is not None and (NODE_MODULES / package).is_dir()
    return find_program(server) is not None


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a free port of 127.0.0.1 at random, for programs that cannot choose one themselves.

    It lies below the range of which the system gives ports to outgoing connections and to tests that run at the same
    time, so that nothing takes it before the program listens.
    """
    for _ in range(100):
        port = random.randrange(10_000, 32_768)
        with socket.socket(socket.AF_INET, kind) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port between 10,000 and 32,767 after 100 attempts")


def wait_for(port: int, process: "subprocess.Popen[bytes] | Forked | None" = None, *, host: str = "127.0.0.1") -> None:
    """Wait until a program accepts connections on the port; raises TimeoutError or ChildProcessError otherwise."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise ChildProcessError(f"{process.args!r} exited with {process.returncode} before it listened")
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(f"nothing listens on {host}:{port} after {PATIENCE:g} s")


@contextmanager
def started(
    command: Sequence[str | Path], port: int, folder: Path, *, stop: int = signal.SIGTERM, host: str = "127.0.0.1"
) -> Iterator[Server]:
    """Start a program, yield it once it listens on the port, and stop it with a signal; killed if that is ignored."""
    log = folder / f"{Path(command[0]).name}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    server = Server(port, process, log)
    try:
        try:
            wait_for(port, process, host=host)
        except OSError as error:
            error.add_note(server.output())
            raise
        yield server
    finally:
        process.send_signal(stop)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    {http}
    server {{
        listen 127.0.0.1:{port};
        {server}
    }}
}}
"""


@contextmanager
def nginx(folder: Path, *, server: str, http: str = "") -> Iterator[Server]:
    """Run nginx with these directives in its one `server` block and, when given, in its `http` block."""
    port = free_port()
    settings = folder / f"nginx-{port}.conf"
    settings.write_text(NGINX.format(folder=folder, port=port, server=server, http=http))
    program = find_program("nginx") or "nginx"
    with started([program, "-p", folder, "-e", folder / "nginx-error.log", "-c", settings], port, folder) as running:
        yield running


@contextmanager
def redis(folder: Path, *options: str, port: int | None = None) -> Iterator[Server]:
    """Run an empty Redis that writes nothing to disk; `port` starts one again where another one was."""
    chosen = port or free_port()
    program = find_program("redis-server") or "redis-server"
    # A node of a cluster that is asked to end waits for its replicas.
    settings = ["--bind", "127.0.0.1", "--port", str(chosen), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with started([program, *settings, *options], chosen, folder, stop=signal.SIGKILL) as running:
        yield running


SLOTS = 16_384


@contextmanager
def redis_cluster(folder: Path, *, replicas: int = 0) -> Iterator[list[Server]]:
    """Run a Redis Cluster of three masters, each with a third of the slots; the replicas of the first follow them.

    A node that does not answer for a second has failed. The other masters stay in use without it.
    """
    from redis import Redis

    with ExitStack() as stack:
        nodes, clients, bus = [], [], free_port()
        for number in range(3 + replicas):
            home = folder / f"node-{number}"
            home.mkdir()
            options = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "1000",
                "--cluster-port",
                str(bus if not number else free_port()),
            ]
            options += ["--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0"]
            nodes.append(stack.enter_context(redis(home, *options, "--repl-diskless-sync-delay", "0")))
            clients.append(stack.enter_context(Redis(port=nodes[-1].port, decode_responses=True)))
        first, *others = clients
        for number, client in enumerate(clients[:3]):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1)
        for client in others:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, bus)
        _wait_until_all(clients, f"cluster_known_nodes:{len(nodes)}", "CLUSTER", "INFO")
        for client in clients[3:]:
            client.execute_command("CLUSTER", "REPLICATE", first.execute_command("CLUSTER", "MYID"))
        _wait_until_all(clients[3:], "'master_link_status': 'up'", "INFO", "replication")
        _wait_until_all(clients, "cluster_state:ok", "CLUSTER", "INFO")
        for node in nodes[:3]:
            _wait_until_all(clients, str(node.port), "CLUSTER", "SLOTS")
        yield nodes


@contextmanager
def redis_sentinel(folder: Path) -> Iterator[tuple[Server, list[Server]]]:
    """Run a Sentinel that knows two servers as `main`, the second of which follows the first; yield it and them."""
    from redis import Redis

    with ExitStack() as stack:
        servers: list[Server] = []
        for number in range(2):
            (folder / str(number)).mkdir()
            options = ["--replicaof", "127.0.0.1", str(servers[0].port)] if servers else []
            servers.append(
                stack.enter_context(redis(folder / str(number), *options, "--repl-diskless-sync-delay", "0"))
            )
        replica = stack.enter_context(Redis(port=servers[1].port, decode_responses=True))
        _wait_until_all([replica], "'master_link_status': 'up'", "INFO", "replication")
        port, file = free_port(), folder / "sentinel.conf"
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel monitor main 127.0.0.1 {servers[0].port} 1",
        ]
        lines += ["sentinel down-after-milliseconds main 500", "sentinel failover-timeout main 2000"]
        file.write_text("\n".join(lines) + "\n")
        command: list[str | Path] = [find_program("redis-server") or "redis-server", file, "--sentinel"]
        sentinel = stack.enter_context(started(command, port, folder))
        client = stack.enter_context(Redis(port=port, decode_responses=True))
        _wait_until_all([client], "slave", "SENTINEL", "REPLICAS", "main")
        yield sentinel, servers


def _wait_until_all(clients: "Sequence[Redis]", text: str, *command: str) -> None:
    """Wait until the reply of each server to a command contains a text."""
    _until(lambda: all(text in str(_ask(client, *command)) for client in clients))


def _ask(client: "Redis", *command: str) -> object:
    return client.execute_command(*command)  # type: ignore[no-untyped-call]  # has no annotations


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the nodes of a cluster do not agree after {PATIENCE:g} s")
        time.sleep(0.02)


# It keeps no file of its own: started by root it becomes another user, who may not write to the folder of a test.
SQUID = """\
http_port 127.0.0.1:{port}
http_access allow all
access_log none
cache deny all
cache_mem 0
cache_log /dev/null
coredump_dir none
netdb_filename none
pid_filename none
pinger_enable off
shutdown_lifetime 0 seconds
{directives}
"""


@contextmanager
def squid(folder: Path, *, directives: str = "") -> Iterator[Server]:
    """Run squid as a forward proxy that tunnels to any port and caches nothing, with these additional directives."""
    port = free_port()
    settings = folder / f"squid-{port}.conf"
    settings.write_text(SQUID.format(port=port, directives=directives))
    # The name is that of its shared memory, which two squids of the same name would both use.
    options = ["-N", "-d", "1", "-n", f"headgate{port}", "-f", str(settings)]
    with started([find_program("squid") or "squid", *options], port, folder) as running:
        yield running


TINYPROXY = """\
Listen 127.0.0.1
Port {port}
Allow 127.0.0.1
MaxClients 1024
Timeout 600
LogLevel Warning
"""


@contextmanager
def tinyproxy(folder: Path) -> Iterator[Server]:
    """Run tinyproxy as a forward proxy that tunnels to any port."""
    port = free_port()
    settings = folder / f"tinyproxy-{port}.conf"
    settings.write_text(TINYPROXY.format(port=port))
    with started([find_program("tinyproxy") or "tinyproxy", "-d", "-c", settings], port, folder) as running:
        yield running


@contextmanager
def nghttpx(
    folder: Path, *, backend: int, key: Path, certificate: Path, options: Sequence[str] = ()
) -> Iterator[Server]:
    """Run nghttpx as a forward proxy over TLS, h2 and http/1.1, in front of the proxy on port `backend`."""
    port = free_port()
    addresses = [f"--frontend=127.0.0.1,{port}", f"--backend=127.0.0.1,{backend}"]
    # In a single process its id is the whole server's, and no configuration of the machine's is read.
    settings = ["--http2-proxy", "--single-process", "--conf=/dev/null", "--no-ocsp", *addresses, *options]
    program = find_program("nghttpx") or "nghttpx"
    with started([program, *settings, key, certificate], port, folder) as running:
        yield running
