import asyncio
import json

import pytest
from msgspec.structs import replace

from headgate.observe import Admin, DomainState, Held, State, gate_metrics

STATE = State((DomainState("default", ("1/s burst 1",), accepted=1, held=(Held(r"\xff", 2.0, 1.0),)),))


def asked(*requests, why="", host="127.0.0.1", eof=True):
    """Give what the listener answers to each of some raw requests."""

    async def state(*, whole):
        return STATE if whole else State(tuple(replace(domain, held=()) for domain in STATE.domains))

    async def ask_all():
        admin = Admin(state, lambda: why, gate_metrics)
        _, port = await admin.listen(host, 0)
        answers = []
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            if eof:
                writer.write_eof()
            answers.append(await reader.read())
            writer.close()
            await writer.wait_closed()
        await admin.close()
        return answers

    return asyncio.run(ask_all())


def get(path, host="127.0.0.1:8090", method="GET", more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def status(answer):
    return int(answer.split(b" ")[1])


def test_the_four_paths():
    live, ready, metrics, state = asked(*map(get, ("/livez", "/readyz", "/metrics", "/api/state?x=1")))
    assert live.endswith(b"\r\n\r\nalive\n")
    assert ready.endswith(b"\r\n\r\nready\n")
    assert b"application/openmetrics-text" in metrics
    assert metrics.endswith(b"# EOF\n")
    told = json.loads(state.partition(b"\r\n\r\n")[2])
    assert told["domains"] == [
        {
            "name": "default", "rules": ["1/s burst 1"], "algorithm": "log", "mode": "enforce",
            "accepted": 1, "delayed": 0, "rejected": 0,
            "held": [{"identifier": r"\xff", "release": 2.0, "seconds": 1.0}],
        }
    ]  # fmt: skip
    for answer in (live, ready, metrics, state):
        assert status(answer) == 200
        assert b"\r\nx-content-type-options: nosniff\r\n" in answer
        assert b"\r\ncache-control: no-store\r\n" in answer


def test_not_ready_is_503_and_still_alive():
    ready, live = asked(get("/readyz"), get("/livez"), why="draining")
    assert status(ready) == 503
    assert ready.endswith(b"draining\n")
    assert status(live) == 200


def test_head_has_no_body_but_its_length():
    (answer,) = asked(get("/livez", method="HEAD"))
    assert b"\r\ncontent-length: 6\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "wanted"),
    [
        (get("/nothing"), 404),
        (get("/"), 404),
        (get("/livez", method="POST"), 405),
        (get("/livez", method="get"), 405),
        (get("/livez", method="DELETE"), 405),
        (get("/livez", more="Content-Length: 3\r\n"), 400),
        (get("/livez", more="Content-Length: 0\r\n"), 200),
        (get("/livez", more="Transfer-Encoding: chunked\r\n"), 400),
        (get("/livez", more="Host: localhost\r\n"), 400),
        (get("/livez", more="Bad : field\r\n"), 400),
        (get("/livez", more=" folded\r\n"), 400),
        (get("/livez", more="A: b\nB: c\r\n"), 400),
        (get("/livez", more="A: \x00\r\n"), 400),
        (get("/livez", more="A:" + " " * 14_000 + "\x01\r\n"), 400),
        (get("/livez", more="Content-Length: \t 0 \t \r\n"), 200),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.0\r\n\r\n", 200),
        (b"GET /livez HTTP/2.0\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET  /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /li\xffvez HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (get("/livez", more="A: " + "x" * 20_000 + "\r\n"), 431),
    ],
)
def test_only_plain_reading_is_answered(request_bytes, wanted):
    (answer,) = asked(request_bytes)
    assert status(answer) == wanted
    if wanted == 405:
        assert b"\r\nallow: GET, HEAD\r\n" in answer


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("gate.localhost", 200),
        ("127.0.0.1", 200),
        ("127.9.9.9:80", 200),
        ("[::1]:8090", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("192.0.2.1", 421),
        ("[2001:db8::1]", 421),
        ("", 400),
        ("a b", 400),
        ("user@localhost", 400),
    ],
)
def test_a_loopback_listener_answers_to_loopback_names_only(host, wanted):
    (answer,) = asked(get("/api/state", host=host))
    assert status(answer) == wanted
    assert wanted == 200 or b"default" not in answer


def test_another_listener_answers_to_any_name():
    (answer,) = asked(get("/livez", host="gate.example"), host="0.0.0.0")
    assert status(answer) == 200


def test_an_agent_that_leaves_midway_harms_nobody():
    nothing, answer = asked(b"GET /livez HT", get("/livez"))
    assert nothing == b""
    assert status(answer) == 200


def test_one_connection_more_than_there_are_places_is_closed():
    async def state(*, whole):
        return STATE

    async def crowd():
        admin = Admin(state, lambda: "", gate_metrics)
        _, port = await admin.listen("127.0.0.1", 0)
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        for _, one in [*waiting, (reader, writer)]:
            one.close()
            await one.wait_closed()
        await admin.close()

    asyncio.run(crowd())
