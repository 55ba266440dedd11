"""The demonstration: a sample origin that shows what reached it, rules that are easy to exceed, and what to try.

The origin is for people who try headgate out; it reads what a gate sends, and is not meant to stand on its own.
"""

import asyncio
import json
from contextlib import suppress

from headgate.config import Address, Configuration, DomainSection, Gate

__all__ = ["SampleOrigin", "demonstration", "leaflet"]

_LONGEST_BODY = 1 << 20
_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<title>Behind the gate</title>
<style>body {{ font: 16px/1.5 system-ui; max-width: 42em; margin: 3em auto; padding: 0 1em }}</style>
<h1>You are through</h1>
<p>This page comes from a sample origin that stands behind a gate. Reload it six times within a minute, and the gate
turns you away: 10 requests a minute are welcome, 5 of them at once.</p>
<p>What reached the origin:</p>
<pre>{echo}</pre>
"""


def demonstration() -> Configuration:
    """Give the demonstration's configuration, all but the origin's address."""
    domains = (
        DomainSection(name="queue", rules=("2/s burst 2",), path_prefix="/queue"),
        DomainSection(name="default", rules=("10/min burst 5",)),
    )
    return Configuration(gate=Gate(listen="127.0.0.1:8080", admin="127.0.0.1:8090"), domain=domains)


def leaflet(gate: str, admin: str, origin: str) -> str:
    """Write what to try, given the URLs of the three."""
    return f"""\
headgate: a gate before a sample origin
  gate    {gate}    10 requests a minute, 5 at once; under /queue 2 a second
  admin   {admin}    /livez /readyz /metrics /api/state
  origin  {origin}    shows what reached it

Try, from another terminal:
  curl -s -o /dev/null -w '%{{http_code}} after %{{time_total}} s\\n' '{gate}/queue?[1-6]'
  curl -sI '{gate}/?[1-6]'
  curl {admin}/api/state
The first waits its turn, the second is rejected in the end, the third tells of both. Ctrl-C stops all.
"""


class SampleOrigin:
    """Answers every request with what it was: as JSON, or as a page for browsers."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen on a free loopback port; returns the URL."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"http://{Address(*self._server.sockets[0].getsockname()[:2])}"

    async def close(self) -> None:
        """Stop."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").rstrip().split("\r\n")
                method, target, _ = first.split(" ")
                fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
                size = await _body_size(reader, dict(fields))
                echo = {"method": method, "target": target, "fields": dict(fields), "body_bytes": size}
                writer.write(_response(echo, dict(fields), with_body=method != "HEAD"))
                await writer.drain()
        writer.close()


async def _body_size(reader: asyncio.StreamReader, fields: dict[str, str]) -> int:
    """Read the body and give its size; the gate sends well-formed ones only."""
    if "chunked" not in fields.get("transfer-encoding", ""):
        return len(await reader.readexactly(min(int(fields.get("content-length", "0")), _LONGEST_BODY)))
    total = 0
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        total += len(await reader.readexactly(size + 2)) - 2
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return total


def _response(echo: dict[str, object], fields: dict[str, str], *, with_body: bool) -> bytes:
    text = json.dumps(echo, indent=2, ensure_ascii=False)
    kind, body = "application/json", f"{text}\n"
    if "text/html" in fields.get("accept", ""):
        safe = text.replace("&", "&amp;").replace("<", "&lt;")
        kind, body = "text/html; charset=utf-8", _PAGE.format(echo=safe)
    content = body.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + (content if with_body else b"")
