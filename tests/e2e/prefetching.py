"""Both ends of a prefetch inside TLS: an origin for every name, which records requests, and two proxies in front of it:
`headgate proxy`, as a program, and a scripted one.

The names are those of `NAMES`: a browser prefetches only from names below a real top level. The origin's own port is
in its addresses, so it is also in the CONNECT's authority.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import trustme

from tests.e2e.programs import Program, headgate

NAMES = ("*.example.com", "*.example.net", "*.example.org", "localhost", "127.0.0.1")
ADVICE = "/.well-known/traffic-advice"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Answer:
    """A status with fields and a body."""

    status: int = 200
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encode(self, *, length: bool = True) -> bytes:
        """Return it as an HTTP/1.1 message; the 200 of a CONNECT has no length."""
        fields = self.fields | ({"Content-Length": str(len(self.body))} if length else {})
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}", *map(": ".join, fields.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + self.body


@dataclass(frozen=True)
class Asked:
    """A received request: its target, the host without the port, and the fields, names in lower case."""

    method: str
    target: str
    host: str
    fields: dict[str, str]

    @classmethod
    def parse(cls, head: bytes) -> "Asked":
        """Parse a well-formed head."""
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return cls(method, target, fields["host"].partition(":")[0], fields)


class Hold:
    """Holds a request: `reached` is set when one waits, `over` ends the wait."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.over = asyncio.Event()


class Origin:
    """An origin for every name.

    `asked` has its requests, `names` the server name of each TLS connection. Unless `answers` has a response for (host,
    path), it responds with a small page, and to requests for advice with 404; with a `hold`, the small page waits.
    """

    def __init__(self, authority: trustme.CA) -> None:
        self.authority = authority
        self.port = 0
        self.asked: list[Asked] = []
        self.names: list[str] = []
        self.answers: dict[tuple[str, str], Answer] = {}
        self.hold: Hold | None = None

    def url(self, host: str, path: str = "/") -> str:
        """Address of a page, with the port."""
        return f"https://{host}:{self.port}{path}"

    def advise(self, host: str, *entries: dict[str, object], status: int = 200, **fields: str) -> None:
        """Publish traffic advice for a host: its entries, and fields such as `retry_after="60"`."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        named["Content-Type"] = "application/trafficadvice+json"
        self.answers[host, ADVICE] = Answer(status, named, json.dumps(entries).encode())

    def refer(self, host: str, *targets: str) -> str:
        """Publish a page that has a browser prefetch these URLs through its proxy at once; return its URL."""
        requires = ["anonymous-client-ip-when-cross-origin"]
        rule = {"urls": targets, "eagerness": "immediate", "requires": requires}
        path = f"/refer/{len(self.answers)}"
        self.answers[host, path] = page(f'<script type="speculationrules">{json.dumps({"prefetch": [rule]})}</script>')
        return self.url(host, path)

    def paths(self, host: str) -> list[str]:
        """Return the requested paths of a host, in order."""
        return [asked.target for asked in self.asked if asked.host == host]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        while True:
            asked = Asked.parse(await reader.readuntil(b"\r\n\r\n"))
            self.asked.append(asked)
            answer = self.answers.get((asked.host, asked.target))
            if answer is None and asked.target == ADVICE:
                answer = Answer(404)
            elif answer is None:
                if self.hold is not None:
                    self.hold.reached.set()
                    await self.hold.over.wait()
                answer = page(f"<p>{asked.target}</p>")
            writer.write(answer.encode())
            await writer.drain()


def page(content: str) -> Answer:
    """Return a page that must not be stored, so that each visit is a request; it has no icon to fetch."""
    head = '<!doctype html><meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,">'
    return Answer(200, {"Content-Type": "text/html", "Cache-Control": "no-store"}, (head + content).encode())


class ScriptedProxy:
    """An HTTP/1.1 CONNECT proxy that connects every tunnel to one port of loopback.

    `asked` has the CONNECT requests. `answers` has the refusals of hosts; None closes the connection instead.
    """

    def __init__(self, behind: int) -> None:
        self.port = 0
        self.asked: list[Asked] = []
        self.answers: dict[str, Answer | None] = {}
        self._behind = behind

    @property
    def url(self) -> str:
        """Its URL, as in a browser's flag."""
        return f"https://127.0.0.1:{self.port}"

    def refuse(self, host: str, status: int, *, retry_after: str | None = None) -> None:
        """Refuse CONNECT requests for a host with this status."""
        self.answers[host] = Answer(status, {} if retry_after is None else {"Retry-After": retry_after})

    def hosts(self) -> list[str]:
        """Return the hosts of the CONNECT requests, in order."""
        return [asked.host for asked in self.asked]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        while True:
            asked = Asked.parse(await reader.readuntil(b"\r\n\r\n"))
            self.asked.append(asked)
            answer = self.answers.get(asked.host, Answer())
            if answer is None:
                return
            if answer.status == 200:
                break
            writer.write(answer.encode())
        there, thither = await asyncio.open_connection("127.0.0.1", self._behind)
        writer.write(answer.encode(length=False))
        # Whichever side is done first ends both: TLS has no half-closed connections.
        ways = [asyncio.create_task(copy(*way)) for way in ((reader, thither), (there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            thither.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes."""
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()


@asynccontextmanager
async def listening(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Listen on a port, inside TLS or not, and serve each connection with `talk`."""
    talks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await talk(reader, writer)
        finally:
            talks.discard(task)
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


def context(authority: trustme.CA) -> ssl.SSLContext:
    """Return the TLS context of a server for all names, with http/1.1."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*NAMES).configure_cert(made)
    made.set_alpn_protocols(["http/1.1"])
    return made


@asynccontextmanager
async def origin_running() -> AsyncIterator[Origin]:
    """Run an origin."""
    origin = Origin(trustme.CA())
    tls = context(origin.authority)
    tls.sni_callback = lambda _connection, name, _context: origin.names.append(name or "")
    async with listening(origin.talk, tls) as origin.port:
        yield origin


@asynccontextmanager
async def scripted_proxy(origin: Origin) -> AsyncIterator[ScriptedProxy]:
    """Run a scripted proxy in front of this origin."""
    proxy = ScriptedProxy(origin.port)
    async with listening(proxy.talk, context(origin.authority)) as proxy.port:
        yield proxy


@contextmanager
def prefetch_proxy(folder: Path, origin: Origin, *flags: object) -> Iterator[Program]:
    """Run `headgate proxy` with a self-signed certificate; every name resolves to this origin."""
    ca = folder / "ca.pem"
    origin.authority.cert_pem.write_to_path(str(ca))
    words = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--self-signed", "--advice-ca", ca]
    words += ["--allow-address", "127.0.0.0/8", "--allow-port", origin.port, "--resolve", f"*=127.0.0.1:{origin.port}"]
    with headgate(folder, "proxy", *words, *flags) as program:
        assert program.ready
        yield program
