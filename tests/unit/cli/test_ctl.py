"""`headgate ctl`: its use, and what it prints of an answer."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("why",), "why takes REQUEST or --identifier X"),
        (("why", "a", "b"), "why takes REQUEST"),
        (("why", "a", "--identifier", "b"), "why takes REQUEST"),
        (("hold", "a"), "hold takes IDENTIFIER SECONDS"),
        (("mode", "a", "shadow", "b"), "mode takes DOMAIN MODE"),
        (("drain", "now"), "drain takes no argument"),
        (("nothing",), "'nothing' is not one of"),
        (("holds", "--admin", "nowhere"), "invalid address"),
        (("holds", "--token", "/nonexistent/token"), "admin.token: /nonexistent/token"),
    ],
)
def test_wrong_use(headgate, words, message):
    ran = headgate("ctl", *words)
    assert (ran.code, ran.out) == (2, b"")
    assert message in ran.err


def ask(headgate, status, content, *words, kind="application/json", host="127.0.0.1"):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(content.replace(b"HOST", self.headers["host"].partition(":")[0].encode()))

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request).start()
        return headgate("ctl", *words, "--admin", f"{host}:{server.server_port}")


def test_text_of_clients_cannot_reach_the_terminal(headgate):
    content = rb'{"requests":[{"path":"/\u001b[2J\n\u009b","received":0.5}],"held":[]}'
    ran = ask(headgate, 200, content, "why", "a")
    assert ran.out == b"requests:\n  path: /\\x1b[2J\\n\\x9b\n  received: 1970-01-01T00:00:00Z\nheld: none\n"
    assert ask(headgate, 200, content, "why", "a", "--json").out.isascii()


@pytest.mark.parametrize(
    ("status", "content", "kind", "code", "message"),
    [
        (404, b'{"error":"no \\u001b"}', "application/json", 1, "headgate: no \\x1b\n"),
        (400, b'{"error":"wrong"}', "application/json", 2, "headgate: wrong\n"),
        (404, b"not found\n", "text/plain", 1, ": not found; is [admin] control = true?\n"),
        (401, b"the token\x1b\n", "text/plain", 1, ": the token\\x1b\n"),
        (200, b"[1", "application/json", 1, ": [1\n"),
        (404, b'{"detail":1}', "application/json", 1, ': {"detail":1}; is'),
    ],
)
def test_refusals(headgate, status, content, kind, code, message):
    ran = ask(headgate, status, content, "holds", kind=kind)
    assert (ran.code, ran.out) == (code, b"")
    assert message in ran.err
    assert "internal" not in ran.err


def test_a_server_at_all_addresses_is_asked_by_a_loopback_name(headgate):
    ran = ask(headgate, 200, b'{"host":"HOST"}', "holds", host="0.0.0.0")
    assert ran.out == b"host: 127.0.0.1\n"


def test_no_server(headgate):
    ran = headgate("ctl", "holds", "--admin", "127.0.0.1:1")
    assert (ran.code, ran.out) == (1, b"")
    assert ran.err.startswith("headgate: no answer of an admin listener at 127.0.0.1:1: Connection refused")
