"""Conditions, identifiers, costs, further domains, denied addresses and RateLimit, of a gate and of middlewares."""

import signal
import sys
from pathlib import Path

import pytest

from tests.e2e import programs
from tests.servers import free_port

FILE = """
[gate]
origin = "{origin}"
trusted_proxies = ["127.0.0.1"]
max_delay = 0
deny = ["denied"]
allow = ["203.0.113.9"]
[[domain]]
name = "search"
path_prefix = ["/search", "/find"]
not = {{ header = "X-Plan", regex = "^(gold|silver)$" }}
also = ["all"]
cost = 4
rules = ["1/min burst 8"]
[[domain]]
name = "projects"
header = "X-Key"
identify = ["header:X-Key", "path:1"]
also = ["all"]
rules = ["1/min burst 4"]
[[domain]]
name = "all"
rules = ["1/min burst 10"]
ratelimit_fields = "all"
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_count_by_the_rules_of_their_domains(tmp_path, workers):
    file, denied = tmp_path / "gate.toml", tmp_path / "denied"
    denied.write_text("203.0.113.0/24  # all but one\n")
    with programs.origin() as origin:
        file.write_text(FILE.replace('"denied"', f'"{denied}"').format(origin=origin.url))
        with programs.gate(tmp_path, "--config", file, "--workers", workers) as gate:

            def ask(client, path, count, **fields):
                return gate.statuses(count, path, X_Forwarded_For=client, **fields)

            assert ask("192.0.2.1", "/x/..;/%73earch", 3) == [200, 200, 503]
            assert ask("192.0.2.1", "/search", 3, X_Plan="gold") == [200, 200, 503]  # 10 of all are used up
            refusal = gate.get("/search", X_Forwarded_For="192.0.2.1")
            assert refusal.headers["RateLimit"].startswith('"search";r=0;t=')
            keys = [ask("192.0.2.2", path, 5, X_Key="k") for path in ("/a/x", "/b")]
            assert keys == [[200] * 4 + [503]] * 2
            told = [gate.get("/a", X_Forwarded_For="192.0.2.3", X_Key="l").headers.get("RateLimit") for _ in range(3)]
            assert told == [None, None, '"projects";r=1;t=180']
            assert gate.get("/", X_Forwarded_For="192.0.2.4").headers["RateLimit"] == '"all";r=9;t=60'
            assert ask("203.0.113.8", "/", 1) + ask("203.0.113.9", "/", 1) == [403, 200]
            assert gate.metrics()["headgate_gateway_denied_total"] == 1
            denied.write_text("192.0.2.5\n")
            gate.process.send_signal(signal.SIGHUP)
            gate.until(lambda: [ask(f"203.0.113.{n}", "/", 1) for n in (7,) * 3] == [[200]] * 3, "file read again")
            assert ask("192.0.2.5", "/", 2) == [403, 403]
            totals = {domain["name"]: domain["accepted"] for domain in gate.state()["domains"]}
            assert (totals["search"], totals["projects"]) == (2, 11)


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_the_middlewares_apply_the_same_rules(start, server):
    port, folder = free_port(), Path(__file__).parent
    command = {
        "uvicorn": ["uvicorn", "--app-dir", folder, "--lifespan", "off", "--port", str(port), "rules_app:app"],
        "gunicorn": ["gunicorn", "--chdir", folder, "-b", f"127.0.0.1:{port}", "rules_app:wsgi"],
    }[server]
    start([Path(sys.executable).parent / command[0], *command[1:]], port)

    def ask(path, user, **fields):
        answer = programs.request(port, path, Cookie=f"user={user}; sid=1", **fields)
        return answer.status, answer.headers.get("RateLimit", "").partition(";")[0]

    assert [ask("/find/a", 1, X_Key="k") for _ in range(3)] == [(200, "")] * 2 + [(503, '"search"')]
    assert [ask(path, 1, X_Key="k") for path in ("/x/..;/%66ind/b", "/find/c")] == [(200, ""), (503, '"all"')]
    assert [ask("/find/d", 2, X_Key=key)[0] for key in "lmno"] == [200, 200, 200, 503]
    for fields in ({"X_Key": "kk"}, {"X_Key": "k", "User_Agent": "ExampleBot/1"}, {}):
        assert [ask("/find/a", str(fields), **fields)[0] for _ in range(6)] == [200] * 5 + [503]
