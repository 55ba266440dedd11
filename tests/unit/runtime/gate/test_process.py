"""A gate that is reloaded and asked for its state, without sockets."""

import asyncio
import threading
import time

import pytest
import trustme
from msgspec.structs import replace

from headgate.config import Address, parse
from headgate.config.tree import ListenerSection, LogSection, TlsSection
from headgate.errors import ConfigurationError
from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.limit import DelayUntil
from headgate.link import GatekeeperLink
from headgate.release import Status
from headgate.runtime import gate_process as module
from headgate.runtime import gatekeeping, master_reports
from headgate.runtime.gate_advice import AdvicePublication, AdviceReport
from headgate.runtime.gate_process import GateConfiguration, GateProcess
from headgate.runtime.listen import Endpoint

FILE = """
[gate]
origin = "http://127.0.0.1:9"
max_delayed = 1
{more}
[[domain]]
name = "a"
rules = ["{rule}"]
"""
ENDPOINTS = (Endpoint(0, Address("127.0.0.1", 0)),)


def tree(rule="1/s burst 1", more=""):
    return parse(FILE.format(rule=rule, more=more))


def configuration(tree):
    return GateConfiguration(tree, ENDPOINTS)


def new_gate():
    return GateProcess(configuration(tree()))


def record_threads(monkeypatch, module, name, result=None):
    """Replace a function of a module by one that records its thread; return the list of them."""
    threads = []

    def recording(*_arguments, **_keywords):
        threads.append(threading.current_thread())
        return result

    monkeypatch.setattr(module, name, recording)
    return threads


class TestReload:
    """What a reload changes, and what it keeps."""

    def test_bundles_are_loaded_by_a_thread(self, monkeypatch):
        """Reading one whole took seconds, in which no request was answered."""
        gate = new_gate()
        threads = record_threads(monkeypatch, module, "load_bundles")
        asyncio.run(gate.reload(configuration(tree("2/s"))))
        assert len(threads) == 1
        assert threads[0] is not threading.main_thread()
        assert gate.tree.domain[0].rules == ("2/s",)

    def test_delayed_requests_keep_their_places(self):
        gate, now = new_gate(), time.time()
        gate.gatekeeper.obey(DelayUntil("a", b"x", now + 1.0))
        assert gate.gatekeeper.admit("a", b"x", now=now).status is Status.DELAYED
        asyncio.run(gate.reload(configuration(tree("5/s burst 9"))))
        gate.gatekeeper.obey(DelayUntil("a", b"x", now + 1.0))
        assert gate.gatekeeper.delayed == 1
        assert gate.gatekeeper.admit("a", b"x", now=now).status is Status.REJECTED

    def test_buffers_are_as_the_new_file_says(self):
        gate = new_gate()
        buffers = gate._gateway.context.buffers
        assert None not in (buffers.for_request(), buffers.for_response())
        asyncio.run(gate.reload(configuration(tree(more="buffer_requests = false\nbuffer_response = 0"))))
        assert buffers.for_request() is buffers.for_response() is None

    async def test_link_carries_the_domains_of_the_new_file(self, monkeypatch):
        carried = []
        monkeypatch.setattr(GatekeeperLink, "set_domains", lambda _, *given: carried.append(given))
        text = FILE.format(rule="1/s", more='master = "tcp://127.0.0.1:1"')
        gate = GateProcess(configuration(parse(text)))
        await gate.reload(configuration(parse(f'{text}[[domain]]\nname = "b"\n')))
        await gate.close()
        # The gate does not know the rules of "b": the link uses its default.
        assert carried == [(["a", "b"],)]

    async def test_worker_asks_for_the_holds_of_domains_that_changed(self, monkeypatch, tmp_path):
        """Those that the master of its supervisor published before this reload would be lost."""
        carried = []
        monkeypatch.setattr(GatekeeperLink, "set_domains", lambda _, given: carried.append(given))
        worker = GateProcess(replace(configuration(tree()), bus=f"ipc://{tmp_path}/bus"))
        await worker.reload(configuration(tree("2/s")))
        await worker.close()
        assert carried == [set(), ["a"]]

    @pytest.mark.parametrize("publication", [None, AdvicePublication(b"[]")], ids=["decides", "worker"])
    def test_what_was_counted_for_the_advice_is_reported(self, publication):
        advice = parse(FILE.format(rule="1/s", more="") + '[advice]\nmode = "adaptive"\ncapacity = "9/s"\n')
        before = GateConfiguration(advice, ENDPOINTS, advice=publication)
        sent = []
        gate = GateProcess(before, sent.append)
        request = parse_request_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLimits())
        gate._advice.arrivals.count(request, None)
        asyncio.run(gate.reload(before))
        assert len(asyncio.run(gate.state(whole=False)).advice) == (2 if publication is None else 0)
        assert sent == ([] if publication is None else [AdviceReport({"*": 1})])
        if publication is None:
            assert gate._advice_loop._law._classes["*"].count == 1

    def test_invalid_configuration_changes_nothing(self):
        gate = new_gate()
        with pytest.raises(ConfigurationError):
            asyncio.run(gate.reload(configuration(tree(more="identify = 'header:'"))))
        assert gate.tree == tree()

    @pytest.mark.parametrize("files", [{"access": "/none/log"}, {"access": "-", "identifiers_key": "/none/key"}])
    def test_files_that_cannot_be_opened_leave_the_certificates_in_force(self, tmp_path, files):
        leaf = trustme.CA().issue_cert("a.example")
        leaf.private_key_and_cert_chain_pem.write_to_path(tmp_path / "pem")
        section = TlsSection(cert=str(tmp_path / "pem"), key=str(tmp_path / "pem"))
        before = replace(tree(), tls=(section,), listener=(ListenerSection(address="127.0.0.1:0", tls=True),))
        gate = GateProcess(configuration(before))
        used = gate._keys[""].context
        (tmp_path / "pem").touch()
        with pytest.raises(ConfigurationError, match="/none/"):
            asyncio.run(gate.reload(configuration(replace(before, log=LogSection(**files)))))
        assert gate._keys[""].context is used
        asyncio.run(gate.reload(configuration(before)))
        assert gate._keys[""].context is not used

    async def test_gate_that_replaces_another_one_goes_on_with_what_that_knows(self):
        now, text = time.time(), FILE.format(rule="1/s", more="") + "[limit.concurrency]\nmax = 3\n"
        before, after = (GateProcess(configuration(parse(text))) for _ in range(2))
        before.gatekeeper.obey(DelayUntil("a", b"x", now + 9))
        before.gatekeeper.admit("a", b"y", now=now)
        after._continue(before)
        assert [after.gatekeeper.held("a", one, now=now) > now for one in (b"x", b"y")] == [True, True]
        both = [before._gateway.context, after._gateway.context]
        assert both[0].permits is both[1].permits is not None
        assert both[0].policy.gatekeeper is both[1].policy.gatekeeper is after.gatekeeper
        assert before._control is after._control


def test_longest_holds_are_found_with_pauses_for_requests():
    """One request for the state looked at every hold: half a second at a million."""
    gate = new_gate()
    for number in range(20_000):
        gate.gatekeeper.obey(DelayUntil("a", b"10.0.%d.%d" % divmod(number, 256), 4e9 + number))
    turns = 0

    async def requests():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main():
        answering = asyncio.ensure_future(requests())
        whole, short = await gate.state(whole=True), await gate.state(whole=False)
        answering.cancel()
        return whole, short

    whole, short = asyncio.run(main())
    held = whole.domains[0].held
    assert [one.release for one in held] == [4e9 + 19_999 - number for number in range(10)]
    assert held[0].identifier == "10.0.78.31"
    assert turns >= 4
    assert short.domains[0].held == ()


WITHOUT_RULES = """
[gate]
origin = "http://127.0.0.1:9"
master = "tcp://127.0.0.1:9"
max_hold = 60
[[domain]]
name = "a"
"""


@pytest.mark.parametrize("lines", [0, 1])
async def test_hold_that_max_hold_shortens_is_logged_once(monkeypatch, capsys, lines):
    monkeypatch.setattr(gatekeeping, "_REPORT_INTERVAL", 0.001)
    gate = GateProcess(configuration(parse(WITHOUT_RULES)))
    await gate.start()
    now = time.time()
    for seconds in (30, *[90, 120] * lines):
        gate.gatekeeper.obey(DelayUntil("a", b"%d" % seconds, now + seconds), now=now)
    await asyncio.sleep(0.05)
    await gate.close()
    expected = "headgate: warning: a master holds a client for longer than gate.max_hold, 60 s"
    assert capsys.readouterr().err.count(expected) == lines


@pytest.mark.parametrize("reports", [False, True])
async def test_one_worker_of_several_reports_lost_masters(monkeypatch, capsys, reports):
    monkeypatch.setattr(master_reports, "_START_TIMEOUT", 0.0)
    gate = GateProcess(GateConfiguration(parse(WITHOUT_RULES), ENDPOINTS, number=0 if reports else 1))
    await gate.start()
    await asyncio.sleep(0.05)
    await gate.close()
    expected = "headgate: warning: master tcp://127.0.0.1:9 is not connected yet; check its address"
    assert (expected in capsys.readouterr().err) is reports
