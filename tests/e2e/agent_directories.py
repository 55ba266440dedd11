"""Directories of agents' keys on 127.0.0.1, https://NAME.localhost:PORT; and agents that sign their requests."""

import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme

from headgate.identity import RequestSigner, SigningKey, sign_directory, write_directory
from headgate.identity.url import PATH

SITE = "www.example.org"
NAMES = ("bot", "other", "named", "huge", "never", "redirect", "gone")


class Directories:
    """The servers: `keys` by name; a name without keys redirects, has 10 MB, never answers, or is gone."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.keys: dict[str, list[SigningKey]] = {}
        self.asked: list[str] = []
        self.end = threading.Event()

    def url(self, name: str) -> str:
        """Return the URL of an agent."""
        return f"https://{name}.localhost:{self.port}"

    def identifier(self, name: str) -> str:
        """Return what identifies an agent."""
        return self.url(name) + PATH

    def new_agent(self, name: str) -> "Agent":
        """Return an agent with a key that its directory has."""
        key = SigningKey(os.urandom(32))
        self.keys.setdefault(name, []).append(key)
        return Agent(key, self.url(name))


class Agent:
    """An agent, which signs requests to `SITE`."""

    def __init__(self, key: SigningKey, url: str) -> None:
        self.key = key
        self._signer = RequestSigner(key, url, entropy=os.urandom)

    @property
    def fields(self) -> dict[str, str]:
        """The fields of its next request, as `programs.request` takes them."""
        fields = self._signer.sign(f"https://{SITE}/", now=time.time())
        return {"Host": SITE, **{name.replace("-", "_"): value for name, value in fields}}


@contextmanager
def running_directories(folder: Path) -> Iterator[Directories]:
    """Serve directories; `ca.pem` in the folder is their authority."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.headers["Host"].partition(".")[0]
            directories.asked.append(name)
            if name == "never":
                directories.end.wait(30)
                return
            if name == "redirect":
                self.send_response(302)
                self.send_header("Location", directories.identifier("bot"))
                self.end_headers()
                return
            keys = directories.keys.get(name)
            if keys is None:
                self.send_error(404)
                return
            body = write_directory(key.public for key in keys)
            body = body if name != "huge" else body + b" " * 10_000_000
            self.send_response(200)
            for field, value in sign_directory(body, keys, self.headers["Host"], now=time.time()):
                self.send_header(field, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_words: object) -> None:
            pass

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", *(f"{name}.localhost" for name in NAMES)).configure_cert(context)
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    directories = Directories(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield directories
    finally:
        directories.end.set()
        server.shutdown()
        thread.join()
        server.server_close()


def until_equal(ask: Callable[[], object], expected: object) -> None:
    """Call `ask` until it returns what is expected."""
    deadline = time.monotonic() + 10
    while (found := ask()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
