import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from headgate.cli import main


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """What it printed, where that is JSON."""
        return json.loads(self.out)

    @property
    def objects(self) -> list[Any]:
        """What it printed, where each line is JSON."""
        return [json.loads(line) for line in self.lines]

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


@pytest.fixture
def headgate(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run `headgate` in this process, as the program would end."""

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main([*map(str, arguments)])
        said = capsysbinary.readouterr()
        assert isinstance(caught.value.code, int)
        return Ran(caught.value.code, said.out, said.err.decode())

    return run


Scripted = tuple[int, dict[str, str], bytes]
"""A response: status, fields, body."""


class Site:
    """Answers each path with the answers of its list, the last one repeatedly; records the requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.answers: dict[str, list[Scripted]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    def answer(self, path: str, *answers: Scripted) -> None:
        self.answers[path] = list(answers)

    def advise(self, body: bytes, status: int = 200, **fields: str) -> None:
        """Answer with traffic advice, with these fields or its media type."""
        fields = fields or {"Content-Type": "application/trafficadvice+json"}
        answer = status, {name.replace("_", "-"): value for name, value in fields.items()}, body
        self.answer("/.well-known/traffic-advice", answer)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@contextmanager
def serving() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            running.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            answers = running.answers.get(self.path, [(404, {}, b"not here\n")])
            status, fields, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **fields}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Site(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield running
        server.shutdown()
        thread.join(10)


@pytest.fixture
def site() -> Iterator[Site]:
    """Run a server with scripted answers."""
    with serving() as running:
        yield running
