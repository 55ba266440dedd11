"""What /metrics of a gate shows: sums that are right, and a different picture for each failure."""

import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests import servers
from tests.e2e import programs

RULES = """\
[[domain]]
name = "limited"
path_prefix = "/limited"
rules = ["1/h burst 5"]
[[domain]]
name = "api"
path_prefix = "/500"
rules = ["100000/s burst 10000"]
"""
RULE = ("--rule", "100000/s burst 10000")
CONNECTIONS = 8


def total(samples, name):
    """Return the sum of a metric over all values of its labels."""
    return sum(value for key, value in samples.items() if key.split()[0] == name)


@pytest.mark.needs("wrk")
def test_the_sums_of_four_workers_are_what_the_load_generator_counted(tmp_path, origin):
    (tmp_path / "gate.toml").write_text(RULES)
    words = ["--config", tmp_path / "gate.toml", "--origin", origin.url, "--workers", 4]
    with programs.gate(tmp_path, *words) as gate:
        before = gate.metrics()
        assert {before[f"headgate_responses_total 5xx {one}"] for one in ("limited", "api", "none")} == {0}
        assert before[f"headgate_upstream_failures_total {origin.url[7:]} unreachable"] == 0
        assert gate.statuses(8, "/limited") == [200] * 5 + [503] * 3
        assert gate.statuses(7, "/500") == [500] * 7
        assert gate.statuses(4, "/404") == [404] * 4
        load = ["wrk", "-t1", f"-c{CONNECTIONS}", "-d1s", gate.ready["address"]]
        done = subprocess.run(load, capture_output=True, text=True, check=True, timeout=60).stdout
        counted = int(re.search(r"(\d+) requests in", done)[1])
        found = gate.until(lambda: None if total(now := gate.metrics(), "headgate_connections") else now, "end of wrk")
    responses = ("2xx limited", "5xx limited", "5xx api", "4xx none")
    assert [found[f"headgate_responses_total {labels}"] for labels in responses] == [5, 3, 7, 4]
    # wrk does not count the requests under way at its end.
    under_way = found["headgate_responses_total 2xx none"] + found["headgate_responses_total none none"] - counted
    assert 0 <= under_way <= CONNECTIONS
    assert found["headgate_unmatched_requests_total"] == counted + under_way + 4
    assert found["headgate_response_seconds_count none"] == counted + under_way + 4
    assert found["headgate_response_bytes_total api"] == 7 * 3
    assert total(found, "headgate_upstream_responses_total") == total(found, "headgate_upstream_seconds_count")
    assert (
        len(origin.seen)
        == total(found, "headgate_upstream_seconds_count") + found["headgate_responses_total none none"]
    )
    assert {f"process_resident_memory_bytes {worker}".strip() for worker in ("", 0, 1, 2, 3)} <= found.keys()


def test_an_origin_that_is_slow_one_that_fails_and_one_that_refuses_look_different(tmp_path):
    names = {
        "slow": "upstream_seconds_bucket 0.25 {}",
        "asked": "upstream_seconds_count {}",
        "failing": "upstream_responses_total 5xx {}",
        "refusing": "upstream_failures_total {} unreachable",
        "active": "upstream_connections {} active",
    }

    def picture():
        samples = gate.metrics()
        found = {name: samples["headgate_" + key.format(origin.url[7:])] for name, key in names.items()}
        return {**found, "slow": found["asked"] - found["slow"]}

    with programs.origin() as origin, programs.gate(tmp_path, "--origin", origin.url, *RULE) as gate:
        assert picture() == dict.fromkeys(names, 0)
        with ThreadPoolExecutor() as pool:
            slow = pool.submit(gate.get, "/slow")
            assert gate.until(lambda: picture() if picture()["active"] else None, "request")["active"] == 1
            time.sleep(0.3)
            origin.hold.set()
            assert slow.result().status == 200
        assert picture() == {"slow": 1, "asked": 1, "failing": 0, "refusing": 0, "active": 0}
        gate.get("/500")
        assert picture() == {"slow": 1, "asked": 2, "failing": 1, "refusing": 0, "active": 0}
        origin.server.server_close()
        gate.until(lambda: gate.get("/close").status == 502, "refusal")
        assert picture()["refusing"] >= 1
        assert picture()["failing"] == 1


def test_a_worker_that_is_stopped_is_seen_and_replaced(tmp_path, origin):
    with programs.gate(tmp_path, "--origin", origin.url, "--workers", 2, *RULE) as gate:
        stopped = gate.children()[0]
        os.kill(stopped, signal.SIGSTOP)
        gate.until(lambda: gate.metrics()["headgate_workers_unresponsive"] == 1, "signal")
        gate.wait_for(rf"^headgate: warning: worker {stopped} does not answer \(stopped\)$")
        gate.wait_for(rf"^headgate: warning: worker {stopped} ended \(killed: it does not answer, stopped\)")
        gate.until(lambda: len(set(gate.children()) - {stopped}) == 2, "worker")
        gate.until(lambda: gate.metrics()["headgate_workers_unresponsive"] == 0, "end")
        assert gate.statuses(8) == [200] * 8


@pytest.mark.needs("redis-server")
def test_a_gate_shows_its_master_and_the_master_its_gates_and_its_store(tmp_path, origin):
    words = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--domain", "default=1/min burst 2"]
    with servers.redis(tmp_path) as redis, ExitStack() as ending:
        store = f"redis://127.0.0.1:{redis.port}"
        master = ending.enter_context(programs.headgate(tmp_path, "master", *words, "--store", store))
        address = master.ready["address"]
        options = ["--origin", origin.url, "--master", address, "--workers", 2, "--rule", "9/min burst 9"]
        gate = ending.enter_context(programs.gate(tmp_path, *options, "--max-delay", 0))

        def becomes(program, name, value):
            return program.until(lambda: program.metrics().get(f"headgate_{name}") == value, f"{name} {value}")

        becomes(gate, f"master_up {address}", 1)
        becomes(master, "master_gates none", 2)  # its workers
        becomes(master, "store_up", 1)
        gate.until(lambda: gate.get().status == 503, "hold")
        becomes(gate, "holds default", 1)
        assert gate.metrics()["headgate_rules_digest default"] != master.metrics()["headgate_rules_digest default"]
        assert master.metrics()["headgate_store_seconds_count"] > 0
        redis.process.terminate()
        becomes(master, "store_up", 0)
        assert gate.end() == 0
        becomes(master, "master_gates none", 0)
        gate = ending.enter_context(programs.gate(tmp_path, *options))
        becomes(gate, f"master_up {address}", 1)
        assert master.end() == 0
        becomes(gate, f"master_up {address}", 0)
