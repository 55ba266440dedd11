"""The concurrency limit of the middlewares under real servers, with more requests than it allows."""

import http.client
import json
import socket
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.servers import PATIENCE, Server, free_port

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
LIMIT = 3
CLIENTS = 40

UVICORN = [BIN / "uvicorn", "--app-dir", HERE, "in_flight_app:asgi", "--lifespan", "off", "--port"]
GRANIAN = [BIN / "granian", "--interface", "asgi", "--working-dir", HERE, "in_flight_app:asgi", "--port"]
SERVE = "from in_flight_app import wsgi; waitress.serve(wsgi, threads=8, listen='127.0.0.1:' + sys.argv[2])"
WAITRESS = [sys.executable, "-c", f"import sys, waitress; sys.path.insert(0, sys.argv[1]); {SERVE}", HERE]


@pytest.fixture(params=[UVICORN, GRANIAN, WAITRESS], ids=["uvicorn", "granian", "waitress"])
def server(request, start):
    port = free_port()
    return start([*request.param, str(port)], port)


@pytest.fixture(params=[UVICORN, GRANIAN], ids=["uvicorn", "granian"])
def asgi_server(request, start):
    port = free_port()
    return start([*request.param, str(port)], port)


def get(server: Server, path: str) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=2 * PATIENCE)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def state(server: Server) -> dict[str, int]:
    counts: dict[str, int] = json.loads(get(server, "/state")[2])
    return counts


def until(server: Server, **expected: int) -> None:
    """Wait until the state of a server has these values."""
    deadline = time.monotonic() + PATIENCE
    while (found := state(server)).items() & expected.items() != expected.items():
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_an_overload_is_bounded_and_loses_no_permit(server):
    with ThreadPoolExecutor(CLIENTS) as threads:
        answers = list(threads.map(lambda _: get(server, "/work"), range(3 * CLIENTS)))
    statuses = Counter(status for status, _, _ in answers)
    assert set(statuses) == {200, 503}
    for status, fields, _ in answers:
        if status == 503:
            assert fields["ratelimit"] == f'"concurrency";r=0;t={fields["retry-after"]}'
            assert fields["cache-control"] == "no-store"
    until(server, in_flight=0, queued=0)
    found = state(server)
    assert found["most"] == LIMIT
    assert found["worked"] == statuses[200]


def test_clients_that_leave_the_queue_never_reach_the_application(asgi_server):
    with ThreadPoolExecutor(LIMIT) as threads:
        hanging = [threads.submit(get, asgi_server, "/hang") for _ in range(LIMIT)]
        until(asgi_server, in_flight=LIMIT)
        leavers = [socket.create_connection(("127.0.0.1", asgi_server.port)) for _ in range(2)]
        for leaver in leavers:
            leaver.sendall(b"GET /work HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until(asgi_server, queued=2)
        for leaver in leavers:
            leaver.close()
        until(asgi_server, queued=0, in_flight=LIMIT)
        get(asgi_server, "/release")
        assert [each.result()[0] for each in hanging] == [200] * LIMIT
    until(asgi_server, in_flight=0, queued=0)
    assert state(asgi_server)["worked"] == LIMIT
