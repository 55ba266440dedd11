"""`headgate proxy` as a process: ready line, refusals, log, metrics and state."""

import json
import re
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.e2e.proxy_setup import origin_running, proxy, sources

VECTORS = Path(__file__).parents[1] / "vectors" / "proxy"
AT_CONNECT = json.loads((VECTORS / "advice-at-connect.json").read_text())["cases"]
WORKERS = pytest.mark.parametrize("workers", [1, 2])


@pytest.mark.parametrize("tls", [True, False])
def test_a_tunnel_to_an_origin_without_advice_is_opened(tmp_path, tls):
    with proxy(tmp_path, tls=tls) as running, running.client() as client:
        scheme = "https" if tls else "http"
        assert re.fullmatch(rf"{scheme}://127\.0\.0\.1:[1-9]\d+", running.program.ready["address"])
        assert client.ask(f"www.example.org:{running.origin.port}").status == 200
        assert client.echoes()
        (head,) = running.origin.asked
        assert head.startswith("GET /.well-known/traffic-advice HTTP/1.1\r\n")
        assert "\r\nUser-Agent: headgate\r\n" in head
        passed = {'bytes_total{direction="sent"}': 5, 'bytes_total{direction="received"}': 5}
        running.wait_for(tunnels=1, **passed)
        client.sock.close()
        running.wait_for(tunnels=0, **passed)


# What is refused, and how.


def refused(answer, status, reason, error):
    """Whether a refusal about one origin is as it should be."""
    assert (answer.status, answer.reason) == (status, reason)
    assert answer.fields["retry-after"] == "0"
    assert answer.fields["proxy-status"] == f'headgate; error={error}; details="{reason}"'
    assert answer.fields["content-length"] == "0"
    return True


@pytest.mark.parametrize("tls", [True, False])
def test_a_refusal_for_one_origin_keeps_the_connection_and_affects_no_other(tmp_path, tls):
    with (
        socket.socket() as closed,
        proxy(tmp_path, "--deny-host", "example.net", "--allow-port", "1", tls=tls) as running,
        running.client() as client,
    ):
        closed.bind(("127.0.0.1", 0))
        port = running.origin.port
        running.origin.advise("no.example.org", {"user_agent": "*", "disallow": True})
        running.origin.advise("none.example.org", {"user_agent": "*", "fraction": 0})
        running.origin.answer("busy.example.org", status=503)
        denied = "http_request_denied"
        assert refused(client.ask("www.example.org:25"), 403, "port", denied)
        assert refused(client.ask(f"www.example.net:{port}"), 403, "host", denied)
        assert refused(client.ask(f"10.0.0.1:{port}"), 403, "address", "destination_ip_prohibited")
        assert refused(client.ask("www.example.org:1"), 502, "dial_refused", "connection_refused")
        assert refused(client.ask("www.example.org:1"), 403, "advice_unreachable", "destination_unavailable")
        assert refused(client.ask(f"no.example.org:{port}"), 403, "advice_disallowed", denied)
        assert refused(client.ask(f"none.example.org:{port}"), 403, "advice_fraction", denied)
        assert refused(client.ask(f"busy.example.org:{port}"), 403, "advice_unreachable", "destination_unavailable")
        assert client.ask(f"www.example.org:{port}").status == 200
        assert client.echoes()
        assert running.origin.echoed == 1
        running.program.until(lambda: sum(line["count"] for line in running.log()) >= 8, "eight logged refusals")
        assert {line["reason"] for line in running.log()} == {
            "port", "host", "address", "dial_refused", "advice_unreachable", "advice_disallowed", "advice_fraction",
        }  # fmt: skip


@WORKERS
def test_the_tunnel_limit_holds_and_refusals_release_their_slots(tmp_path, workers):
    with proxy(tmp_path, "--max-tunnels", 3, "--workers", workers) as running, ExitStack() as open_ones:
        to = f"www.example.org:{running.origin.port}"
        clients = [open_ones.enter_context(running.client()) for _ in range(12)]
        for client in clients:
            client.send(f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode())
        answers = [client.answer() for client in clients]
        assert sorted(answer.status for answer in answers) == [200] * 3 + [503] * 9
        full = next(answer for answer in answers if answer.status == 503)
        assert full.reason == "tunnels"
        assert int(full.fields["retry-after"]) >= 1
        assert len(running.origin.asked) == 1
        tunnels = [client for client, answer in zip(clients, answers, strict=True) if answer.status == 200]
        assert all(client.echoes() for client in tunnels)
        for client in tunnels[:2]:
            client.sock.close()
        running.wait_for(tunnels=1)
        assert [running.ask(port=running.origin.port).status for _ in range(6)] == [200] * 6


# Advice.


@pytest.mark.parametrize("case", AT_CONNECT, ids=lambda case: case["name"])
def test_advice_at_connect(tmp_path, case):
    fields = {name: case[name] for name in ("content_type", "location", "retry_after") if name in case}
    with origin_running() as origin:
        if case["status"] == "TLS error":
            origin.distrusted()
        else:
            origin.answer("www.example.org", status=case["status"], body=case["body"], **fields)
        with proxy(tmp_path, "--brand", "TollKeeper", origin=origin, admin=False) as running:
            if isinstance(case["connect"], str):  # a tenth of the clients
                start, found = time.time(), [running.ask(source=one).status for one in [*sources(200)] * 2]
                first, again = found[:200], found[200:]
                assert first == again or start // 600 != time.time() // 600  # then it is drawn anew
                assert 3 < first.count(200) < 50
                assert first.count(403) == 200 - first.count(200)
            else:
                assert [running.ask().status for _ in range(3)] == [case["connect"]] * 3
            if case["connect"] == 403:
                assert origin.echoed == 0
            if case["status"] != "TLS error":
                (head,) = origin.asked
                assert "\r\nUser-Agent: TollKeeper\r\n" in head


# What is written down.


@WORKERS
def test_the_log_has_refusals_and_counts_but_no_clients(tmp_path, workers):
    secret = "dG9wc2VjcmV0"
    more = f"Proxy-Authorization: Bearer {secret}\r\nchrome-tunnel: key={secret}\r\nCookie: {secret}\r\n"
    with proxy(tmp_path, "--workers", workers) as running:
        assert running.ask(more=more).status == 200
        assert running.ask(port=25, more=more, source="127.3.4.5").status == 403
        with running.client() as client:
            for _ in range(99):
                assert client.ask("www.example.org:25").status == 403
        running.wait_for(tunnels=0)
        assert running.program.end() == 0
        *refusals, tunnels = sorted(running.log(), key=lambda line: line["event"])
        assert len(refusals) < sum(line["count"] for line in refusals) == 100
        for line in refusals:
            assert {
                "event": "refused",
                "origin": "https://www.example.org:25",
                "reason": "port",
            }.items() <= line.items()
        assert {"event": "tunnels", "accepted": 1, "open": 0}.items() <= tunnels.items()
        said = running.program.said()
        assert secret not in said
        assert "127.3.4.5" not in said
        assert "chrome-tunnel" not in said.lower()
        assert secret not in running.origin.asked[0]


# What can be seen.


@WORKERS
def test_metrics_and_state_have_the_documented_names(tmp_path, workers):
    with proxy(tmp_path, "--workers", workers) as running, running.client() as client:
        running.origin.advise("half.example.org", {"user_agent": "*", "fraction": 0.5}, cache_control="max-age=3600")
        running.origin.answer("busy.example.org", status=503)
        assert client.ask(f"www.example.org:{running.origin.port}").status == 200
        assert running.ask("busy.example.org").status == 403
        running.ask("half.example.org", source="127.0.0.9")
        running.ask(port=25)
        families = {family.name for family in text_string_to_metric_families(running.program.admin("/metrics"))}
        names = {"connects", "tunnels", "bytes", "advice_fetches", "request_bytes"}
        assert {f"headgate_proxy_{name}" for name in names} <= families
        metrics = running.metrics()
        for name in ('connects_total{result="port"}', 'advice_fetches_total{result="unreachable"}', "tunnels"):
            assert metrics[f"headgate_proxy_{name}"] == 1, name
        assert metrics['headgate_proxy_request_bytes_total{of="advice"}'] > 3 * 200
        state = running.program.state()
        assert (state["tunnels"], state["draining"]) == (1, False)
        origins = {origin.pop("origin").partition(".")[0]: origin for origin in state["origins"]}
        assert 50 < origins["https://busy"].pop("fresh_for") <= 60
        assert origins["https://busy"] == {"result": "unreachable", "accepted": 0, "refused": {"advice_unreachable": 1}}
        assert 3500 < origins["https://half"]["fresh_for"] <= 3600
        assert origins["https://half"]["result"] == {"disallowed": False, "fraction": 0.5}
        assert len(origins) == 3
        assert running.program.admin("/livez") == "alive\n"
        assert running.program.admin("/readyz") == "ready\n"
