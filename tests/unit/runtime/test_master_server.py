import asyncio
import json
import os
import sys
import time

import pytest

from headgate.limit import Accounting, Master
from headgate.release import Status
from headgate.runtime import master_server as report_module
from headgate.runtime.master_server import MasterServer
from tests.unit.runtime import serving
from tests.unit.runtime.serving import reading, reload, until

NOW = 1_700_000_000.0


def text(rule="1/h", *, listen="127.0.0.1:0"):
    return f'[master]\nlisten = "{listen}"\n[[domain]]\nname = "api"\nrules = ["{rule}"]\n'


def running(read):
    return serving.running(lambda: MasterServer(read, as_json=False))


def run(read, steps=None, *, as_json=False):
    return serving.run(lambda: MasterServer(read, as_json=as_json), steps)


def master_of(lifecycle):
    return lifecycle._server._link.master


def account(master):
    return master.account(Accounting("api", Status.ACCEPTED, b"a", NOW, NOW), now=NOW)


def test_rules_that_need_much_memory_are_logged_at_the_start_and_at_a_reload():
    messages = run(reading(text("20000/h").replace("rules", 'algorithm = "log"\nrules')), reload)
    assert ["warning" in message for message in messages] == [True, True, False, False, True, True, False]


def test_a_bus_without_keys_beyond_loopback_is_logged():
    insecure = text(listen=":0").replace("[[domain]]", "insecure = true\n[[domain]]")
    warning, _, ready = run(reading(insecure))
    assert warning.startswith(
        "headgate: warning: tcp://0.0.0.0:0: other machines can reach this address, and it has no"
    )
    assert ready.startswith("ready tcp://0.0.0.0:")


async def test_counts_are_the_sums_of_all_domains():
    async with running(reading(text())) as (lifecycle, _):
        account(master_of(lifecycle))
        counts = report_module.read_counts(lifecycle._server._link, NOW + 0.0004)
        assert (counts["time"], counts["accepted"], counts["identifiers"]) == (NOW, 1, 1)
        assert counts["domains"] == {"api": {"accepted": 1, "delayed": 0, "rejected": 0}}
        assert counts["controls"] == 0


def test_json_lines_are_written_as_long_as_they_are_read(monkeypatch):
    monkeypatch.setattr(report_module, "_REPORT_INTERVAL", 0)
    reader, writer = os.pipe()
    with os.fdopen(reader) as lines, os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)

        async def steps(lifecycle):
            line = await asyncio.to_thread(lines.readline)
            assert json.loads(line)["domains"] == {"api": {"accepted": 0, "delayed": 0, "rejected": 0}}
            lines.close()
            await until(lambda: lifecycle._finished.done())

        with pytest.raises(BrokenPipeError):
            run(reading(text()), steps, as_json=True)
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            output.close()


class TestState:
    async def test_totals_identifiers_and_counters_need_no_look_at_the_histories(self, monkeypatch):
        async with running(reading(text())) as (lifecycle, _):
            account(master_of(lifecycle))
            monkeypatch.setattr(Master, "hold_batches", None)
            state = await lifecycle._server.state(whole=False)
            (domain,) = state.domains
            assert (domain.name, domain.rules, domain.accepted, domain.identifiers) == ("api", ("1/h burst 1",), 1, 1)
            assert (domain.holds, domain.held) == (0, ())
            assert (state.identifiers, state.counters["bus_controls"], state.counters["master_unknown"]) == (1, 0, 0)

    async def test_holds_are_counted_and_secret_identifiers_are_digests(self):
        async with running(reading(text())) as (lifecycle, _):
            now = time.time()
            for identifier in (b"192.0.2.1", b"key"):
                accounting = Accounting("api", Status.ACCEPTED, identifier, now, now)
                assert master_of(lifecycle).account(accounting, now=now)
            (domain,) = (await lifecycle._server.state(whole=True)).domains
            assert domain.holds == 2
            assert {one.identifier for one in domain.held} == {"192.0.2.1", "sha256:2c70e12b7a0646f9"}
            assert all(3_590 < one.seconds <= 3_600 for one in domain.held)
