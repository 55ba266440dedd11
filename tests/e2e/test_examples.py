"""The examples, each run as its reader would run it, under the servers they name, over real sockets."""

import http.client
import json
import socket
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.servers import PATIENCE, Server, free_port

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
BIN = Path(sys.executable).parent

UVICORN = [BIN / "uvicorn", "--app-dir", EXAMPLES, "--no-proxy-headers", "fastapi_app:app", "--port"]
GRANIAN = [BIN / "granian", "--interface", "asgi", "--working-dir", EXAMPLES, "fastapi_app:app", "--port"]
ASGI = pytest.mark.parametrize("command", [UVICORN, GRANIAN], ids=["uvicorn", "granian"])

WAITRESS = (
    "import waitress, long_delay_app; waitress.serve(long_delay_app.wsgi, threads=4, listen='127.0.0.1:' + sys.argv[1])"
)
GUNICORN = (
    "from gunicorn.app.wsgiapp import run; "
    "sys.argv[1:] = ['-w', '2', '-b', '127.0.0.1:' + sys.argv[1], 'long_delay_app:wsgi']; run()"
)


@pytest.fixture
def run(start):
    """Return a function that starts a command whose last argument is its port."""

    def launch(command: list[str | Path]) -> Server:
        port = free_port()
        return start([*command, str(port)], port)

    return launch


@pytest.fixture
def run_file(start, monkeypatch):
    """Return a function that runs an example as a program."""

    def launch(name: str) -> Server:
        port = free_port()
        monkeypatch.setenv("PORT", str(port))
        return start([sys.executable, EXAMPLES / name], port)

    return launch


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.fields = response.headers
        self.body = response.read()


def ask(
    server: Server, path: str, method: str = "GET", body: bytes | None = None, address: str = "127.0.0.1", **fields: str
) -> Answer:
    source = (address, 0)
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, PATIENCE, source)) as connection:
        lines = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request(method, path, body=body, headers=lines)
        return Answer(connection.getresponse())


def burst(server: Server, path: str, number: int, **fields: str) -> list[Answer]:
    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(lambda _: ask(server, path, **fields), range(number)))


def state(server: Server) -> dict[str, int]:
    counts: dict[str, int] = json.loads(ask(server, "/state").body)
    return counts


def assert_refused(answer: Answer, domain: str, policy: str) -> None:
    assert answer.status == 503
    after = int(answer.fields["Retry-After"])
    assert after >= 1
    assert answer.fields["RateLimit-Policy"] == policy
    assert answer.fields["RateLimit"] == f'"{domain}";r=0;t={after}'
    assert answer.fields["Cache-Control"] == "no-store"


def until(condition) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@ASGI
def test_a_burst_is_accepted_then_delayed_then_rejected(run, command):
    server = run(command)
    answers = burst(server, "/api/hello", 14)
    counts = Counter(answer.status for answer in answers)
    seen = state(server)
    assert set(counts) == {200, 503}
    assert seen["accepted"] >= 5
    assert seen["delayed"] >= 1
    assert seen["rejected"] == counts[503]
    assert seen["calls"] == counts[200] == seen["accepted"] + seen["delayed"]
    for answer in answers:
        if answer.status == 503:
            assert_refused(answer, "api", '"api";q=5;w=3')
            assert answer.fields["Content-Type"] == "text/plain; charset=utf-8"


@ASGI
def test_a_delayed_body_arrives_whole_and_a_rejection_is_json_on_request(run, command):
    server = run(command)
    words = [f"word {number}" for number in range(20_000)]
    body = json.dumps(words).encode()
    for _ in range(5):
        ask(server, "/api/hello")
    answer = ask(server, "/api/echo", "POST", body, Content_Type="application/json")
    assert answer.status == 200
    assert json.loads(answer.body) == words
    refused = [answer for answer in burst(server, "/api/hello", 8, Accept="application/json") if answer.status == 503]
    assert refused[0].fields["Content-Type"] == "application/problem+json"
    assert json.loads(refused[0].body)["violated-policies"] == ["api"]


@ASGI
def test_a_client_that_disconnects_while_delayed_frees_its_slot(run, command):
    server = run(
        [HERE if word is EXAMPLES else "long_delay_app:app" if word == "fastapi_app:app" else word for word in command]
    )
    assert ask(server, "/slow").status == 200
    leavers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    for leaver in leavers:
        leaver.sendall(b"POST /slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\nhi")
    assert until(lambda: state(server)["waiting"] == 3)
    for leaver in leavers:
        leaver.close()
    assert until(lambda: state(server)["waiting"] == 0)
    assert state(server) == {"calls": 1, "waiting": 0, "delayed": 3}


@pytest.mark.parametrize(("serve", "processes"), [(WAITRESS, 1), (GUNICORN, 2)], ids=["waitress", "gunicorn"])
def test_a_client_over_its_rule_occupies_no_thread(run, serve, processes):
    """Six flooding connections to four threads or two workers: others are answered, and the flood is rejected."""
    server = run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r}); {serve}"])
    others_are_done = threading.Event()

    def flood(_: int) -> Counter[int]:
        statuses = Counter([ask(server, "/").status])
        while not others_are_done.is_set():
            statuses[ask(server, "/").status] += 1
        return statuses

    with ThreadPoolExecutor(6) as threads:
        floods = threads.map(flood, range(6))
        try:
            others = [ask(server, "/", address=f"127.0.0.{number}").status for number in range(2, 42)]
        finally:
            others_are_done.set()
        statuses = sum(floods, Counter())
    assert others == [200] * 40
    assert 1 <= statuses.pop(200) <= processes
    assert set(statuses) == {503}
    assert statuses[503] >= 5


@ASGI
def test_a_websocket_is_accepted_then_rejected(run, command):
    server = run(command)
    url = f"ws://127.0.0.1:{server.port}/chat"
    for _ in range(2):
        with connect(url, proxy=None) as websocket:
            websocket.send("hello")
            assert websocket.recv() == "hello"
    with pytest.raises(InvalidStatus) as caught, connect(url, proxy=None):
        pass
    # Both servers can refuse with a whole response; a close before the accept would be a bare 403.
    assert caught.value.response.status_code == 503
    assert caught.value.response.headers["RateLimit-Policy"] == '"chat";q=2;w=60'


@pytest.mark.parametrize(
    ("name", "path", "domain", "policy"),
    [
        ("fastapi_app.py", "/api/hello", "api", '"api";q=5;w=3'),
        ("flask_app.py", "/", "default", '"default";q=5;w=3'),
        ("django_app.py", "/", "site", '"site";q=5;w=3'),
        ("django_app.py", "/login", "login", '"login";q=2;w=60'),
    ],
)
def test_each_file_runs_and_limits(run_file, name, path, domain, policy):
    server = run_file(name)
    answers = burst(server, path, 14)
    assert {answer.status for answer in answers} == {200, 503}
    assert next(json.loads(answer.body) for answer in answers if answer.status == 200) == {"hello": "world"}
    assert_refused(next(answer for answer in answers if answer.status == 503), domain, policy)
