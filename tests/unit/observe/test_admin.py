"""The admin application behind the listener that serves it, asked in raw bytes."""

import asyncio
import json
import os
import re
from platform import python_version

import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_families

from headgate.config.tree import AdminSection
from headgate.errors import ConfigurationError
from headgate.observe import DomainState, GateState, HeldIdentifier, gate_metrics
from headgate.observe.admin import MetricsWriter
from headgate.observe.state import ServerState
from headgate.runtime.admin import start_admin
from headgate.runtime.lifecycle import Server
from headgate.version import VERSION

STATE = GateState((DomainState("default", ("1/s burst 1",), accepted=1, held=(HeldIdentifier(r"\xff", 2.0, 1.0),)),))


def collect(state):
    return gate_metrics(state, [])


async def state(*, whole):
    return STATE if whole else GateState(tuple(replace(domain, held=()) for domain in STATE.domains))


def responses(*requests, unready="", host="127.0.0.1", state=state, **settings):
    """Return the response to each raw request, each on its own connection."""

    async def main():
        server = Server()
        server.state, server.metrics, server.unready = state, collect, lambda: unready
        async with server.closing:
            await start_admin(server, f"{host}:0", AdminSection(**settings))
            received = []
            for request in requests:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.admin[0].port)
                writer.write(request)
                received.append(await reader.read())
                writer.close()
                await writer.wait_closed()
        return received

    return asyncio.run(main())


def get(path, host="127.0.0.1:8090", method="GET", more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def status(response):
    return int(response.split(b" ")[1])


def test_paths():
    live, ready, metrics, whole = responses(*map(get, ("/livez", "/readyz", "/metrics", "/api/state?x=1")))
    assert live.endswith(b"\r\n\r\nalive\n")
    assert ready.endswith(b"\r\n\r\nready\n")
    assert b"application/openmetrics-text" in metrics
    assert metrics.endswith(b"# EOF\n")
    assert b"\r\ncontent-type: application/json\r\n" in whole
    assert json.loads(whole.partition(b"\r\n\r\n")[2])["domains"] == [
        {
            "name": "default", "rules": ["1/s burst 1"], "algorithm": "gcra", "mode": "enforce",
            "accepted": 1, "delayed": 0, "rejected": 0,
            "held": [{"identifier": r"\xff", "release": 2.0, "seconds": 1.0}], "holds": 0,
        }
    ]  # fmt: skip
    for response in (live, ready, metrics, whole):
        assert status(response) == 200
        assert b"\r\nx-content-type-options: nosniff\r\n" in response
        assert b"\r\ncache-control: no-store\r\n" in response
        assert b"\r\nconnection: close\r\n" in response


def test_readyz_is_503_with_the_reason_while_livez_is_200():
    ready, live = responses(get("/readyz"), get("/livez"), unready="draining")
    assert status(ready) == 503
    assert ready.endswith(b"draining\n")
    assert status(live) == 200


def test_head_has_the_length_and_no_body():
    (response,) = responses(get("/livez", method="HEAD"))
    assert b"\r\ncontent-length: 6\r\n" in response
    assert response.endswith(b"\r\n\r\n")


def test_internal_error_is_500_and_one_line_on_stderr(capsys):
    async def fail(*, whole):
        raise KeyError("x")

    response, live = responses(get("/api/state"), get("/livez"), state=fail)
    assert status(response) == 500
    assert response.endswith(b"internal error\n")
    assert status(live) == 200
    assert capsys.readouterr().err == "headgate: internal error in the admin listener: KeyError('x')\n"


REQUESTS = [
    (get("/nothing"), 404),
    (get("/", more="Content-Length: 1\r\n"), 400),
    (get("/livez/"), 404),
    (get("/livez", method="POST"), 405),
    (get("/livez", method="get"), 405),
    (get("/livez", more="Content-Length: 3\r\n"), 400),
    (get("/livez", more="Content-Length: 0\r\n"), 200),
    (get("/livez", more="Transfer-Encoding: chunked\r\n"), 400),
    (get("/livez", more="Host: localhost\r\n"), 400),
    (get("/livez", more="Bad : field\r\n"), 400),
    (get("/livez", more=" folded\r\n"), 400),
    (get("/livez", more="A: \x00\r\n"), 400),
    (get("/livez", more="A:" + " " * 14_000 + "\x00\r\n"), 400),
    (get("/livez", more="Content-Length: \t 0 \t \r\n"), 200),
    (b"GET /livez HTTP/1.1\r\n\r\n", 400),
    (b"GET /livez HTTP/1.0\r\n\r\n", 200),
    (b"GET http://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET  /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /li\xffvez HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"\x16\x03\x01\r\n\r\n", 400),
    (get("/livez", more="A: " + "x" * 20_000 + "\r\n"), 431),
]


def test_request_grammar(capsys):
    received = responses(*[request for request, _ in REQUESTS])
    found = [(request, status(response)) for (request, _), response in zip(REQUESTS, received, strict=True)]
    assert [row for row in found if row not in REQUESTS] == []
    refused = [response for response in received if status(response) == 405]
    assert all(b"\r\nallow: GET, HEAD\r\n" in response for response in refused)
    assert capsys.readouterr().err == ""


HOSTS = {
    "localhost": 200,
    "LOCALHOST:1": 200,
    "gate.localhost": 200,
    "127.0.0.1": 200,
    "127.9.9.9:80": 200,
    "[::1]:8090": 200,
    "gate-1.PROD:8090": 200,
    "192.0.2.7": 200,
    "evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "192.0.2.1": 421,
    "": 400,
    "a b": 400,
    "user@localhost": 400,
}


def test_loopback_listener_answers_only_loopback_names_and_those_of_the_configuration(capsys):
    received = responses(*[get("/api/state", host=host) for host in HOSTS], hosts=("Gate-1.prod", "192.0.2.7"))
    assert dict(zip(HOSTS, map(status, received), strict=True)) == HOSTS
    assert all(b'"name"' not in response for response in received if status(response) != 200)
    line = "headgate: the admin listener refuses requests for the host 'evil.example'; see admin.hosts\n"
    assert capsys.readouterr().err == line


def test_the_page_loads_and_links_to_what_is_there():
    (page,) = responses(get("/"))
    assert b"\r\ncontent-type: text/html; charset=utf-8\r\n" in page
    assert b"\r\ncontent-security-policy: default-src 'self'; frame-ancestors 'none'; " in page
    links = [link.decode() for link in re.findall(b'(?:href|src)="([^"#]+)"', page)]
    assert {"/app.js", "/vendor/uPlot.iife.min.js", "/style.css", "/metrics"} <= set(links)
    assert {status(response) for response in responses(*map(get, links))} == {200}
    hidden = responses(get("/vendor/VERSION"), get("/../admin.py"), get("/feed.py"))
    assert {status(response) for response in hidden} == {404}


BROWSER = "Accept-Language: \r\n"
OTHER_HOSTS = [
    *(("/api/state", host, BROWSER, 200) for host in ("192.0.2.1", "[2001:db8::1]:8090", "gate-1", "a.localhost")),
    *(("/api/state", host, BROWSER, 200) for host in ("GATE-1.prod", "node-1.example:8090")),
    *((path, "evil.example", BROWSER, 421) for path in ("/", "/api/state", "/events", "/metrics", "/readyz")),
    *((path, "evil.example", "", 421) for path in ("/", "/api/state", "/events", "/control/holds")),
    *((path, "gate-2.prod:8090", "", 200) for path in ("/livez", "/readyz", "/metrics")),
    *(("/api/state", host, "", 421) for host in ("evil.", "192.0.2.1.evil.example", "1.2", "a.node-1.example")),
]


def test_other_listener_answers_names_that_no_site_has_and_programs_read_the_probes_by_any(monkeypatch):
    monkeypatch.setattr("headgate.observe.admin.node", lambda: "Node-1.example")
    requests = [get(path, host=host, more=more) for path, host, more, _ in OTHER_HOSTS]
    received = responses(*requests, host="0.0.0.0", hosts=("gate-1.prod",))
    assert [(*row[:3], status(response)) for row, response in zip(OTHER_HOSTS, received, strict=True)] == OTHER_HOSTS


COMMAND = "X-Headgate-Control: 1\r\n"
BEARER = "Authorization: Bearer 0123456789abcdef\r\n"
HOLDS = "/control/holds"
MODE = "/control/mode?domain=a&mode=shadow"
SAME, ORIGIN = "Sec-Fetch-Site: same-origin\r\n", "Origin: http://127.0.0.1:8090\r\n"
CONTROL = [
    (get(HOLDS, more=COMMAND), 200, 401),
    (get(HOLDS, more=COMMAND + BEARER), 200, 200),
    (get(HOLDS, more=COMMAND + BEARER.replace("f\r", "e\r")), 200, 401),
    (get(HOLDS, more=COMMAND + BEARER.replace("Bearer", "Basic")), 200, 401),
    (get(HOLDS, more=COMMAND + BEARER.replace("f\r", "\xe9\r")), 200, 401),
    (get(HOLDS, more=BEARER), 403, 403),
    *((get(HOLDS, more=f"{COMMAND}{BEARER}{name}: x\r\n"), 403, 403) for name in ("Origin", "Via", "X-Forwarded-For")),
    (get(HOLDS, more=COMMAND + BEARER + SAME), 403, 200),
    (get(HOLDS, more=COMMAND + SAME), 403, 401),
    (get(MODE, method="POST", more=COMMAND + BEARER + SAME + ORIGIN), 403, 404),
    (get(MODE, method="POST", more=COMMAND + BEARER + SAME), 403, 403),
    (get(MODE, method="POST", more=COMMAND + BEARER + ORIGIN), 403, 403),
    (get(MODE, method="POST", more=COMMAND + BEARER + SAME + ORIGIN.replace("8090", "8091")), 403, 403),
    (get(MODE, method="POST", more=COMMAND + BEARER + SAME + ORIGIN.replace("http", "https")), 403, 403),
    (get(MODE, method="POST", more=COMMAND + BEARER + SAME.replace("origin", "site") + ORIGIN), 403, 403),
    (get(HOLDS, host="evil.example", more=COMMAND + BEARER), 421, 200),
    (get(HOLDS, method="POST", more=COMMAND + BEARER), 405, 405),
    (get("/control/drain", more=COMMAND + BEARER), 405, 405),
    (get("/control/mode?domain=a&mode=shadow", method="POST"), 403, 403),
    (get("/control/mode?domain=a&mode=shadow", method="POST", more=COMMAND + BEARER), 404, 404),
    (get("/control/mode?mode=%00%FF&mode=x", method="POST", more=COMMAND + BEARER), 400, 400),
    (get("/control/mode", method="OPTIONS", more="Origin: http://a\r\n"), 405, 405),
    (get("/control/", more=COMMAND + BEARER), 404, 404),
    (get("/livez", method="POST", more=COMMAND + BEARER), 405, 405),
]


def test_commands_come_from_this_machine_or_have_the_token_and_from_no_other_page(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    requests = [request for request, _, _ in CONTROL]
    local = map(status, responses(*requests, host="0.0.0.0", control=True))
    remote = map(status, responses(*requests, host="0.0.0.0", control=True, token=str(token)))
    assert list(zip(requests, local, remote, strict=True)) == CONTROL
    off = responses(*(get(path, more=COMMAND) for path in (HOLDS, "/control/why?request=1")))
    assert [status(response) for response in off] == [404, 404]


@pytest.mark.parametrize("content", [None, "short", "x" * 1025, "0123456789abcde\xe9", "0123 456789abcdef"])
def test_invalid_token_is_an_error_of_the_start(tmp_path, content):
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(ConfigurationError, match=r"^admin.token: "):
        responses(control=True, token=str(tmp_path / "token"))


GATE_STATE = GateState(
    (
        DomainState("default", accepted=3, delayed=2, rejected=1, held=(HeldIdentifier("192.0.2.1", 1.0, 1.0),)),
        DomainState('odd "name"\n\\', accepted=9),
    ),
    delayed_now=2,
    connections={"idle": 4, "tunnel": 1},
    workers=2,
)


def samples(families):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }


@pytest.mark.parametrize("accept", ["", "*/*", "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"])
def test_openmetrics_is_the_default(accept):
    text, kind = MetricsWriter().write(collect(GATE_STATE), ServerState(workers={"0": (os.getpid(), False)}), accept)
    assert kind.startswith("application/openmetrics-text")
    found = samples(text_string_to_metric_families(text.decode()))
    labels = (("domain", "default"), ("outcome", "delayed"))
    assert found["headgate_requests_total", *labels] == 2
    assert found["headgate_requests_total", ("domain", 'odd "name"\n\\'), ("outcome", "accepted")] == 9
    assert found["headgate_delayed_requests",] == 2
    assert found["headgate_connections", ("state", "idle")] == 4
    assert found["headgate_workers",] == 2
    assert found["headgate_config_last_reload_successful",] == 1
    assert found["headgate_build_info", ("python", python_version()), ("version", VERSION)] == 1
    assert found["headgate_workers_unresponsive",] == 1
    own, worker = (found["process_max_fds", *labels] for labels in ((), [("worker", "0")]))
    assert own == worker > 0


def test_the_older_format_where_only_that_is_asked_for_without_identifiers():
    text, kind = MetricsWriter().write(collect(GATE_STATE), ServerState(), "text/plain;version=0.0.4")
    assert kind.startswith("text/plain")
    labels = (("domain", "default"), ("outcome", "rejected"))
    assert samples(older_families(text.decode()))["headgate_requests_total", *labels] == 1
    assert b"192.0.2.1" not in text


def test_each_scrape_reads_anew_and_registries_do_not_meet():
    metrics = MetricsWriter()
    assert b"headgate_requests_total{" in metrics.write(collect(GATE_STATE), ServerState())[0]
    assert b"headgate_requests_total{" not in metrics.write(collect(GateState()), ServerState())[0]
    assert b"} 3.0\n" in MetricsWriter().write(collect(GATE_STATE), ServerState())[0]
