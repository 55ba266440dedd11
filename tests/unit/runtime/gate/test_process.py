"""A gate and the parent of several, changed while they run; without sockets."""

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest

from headgate.config import Address, parse
from headgate.errors import ConfigurationError
from headgate.limit import DelayUntil
from headgate.link import GatekeeperLink
from headgate.release import Status
from headgate.runtime.gate import process as gate_module
from headgate.runtime.gate import workers as workers_module
from headgate.runtime.gate.process import Gate
from headgate.runtime.gate.workers import Workers

FILE = """
[gate]
origin = "http://127.0.0.1:9"
max_delayed = 1
{more}
[[domain]]
name = "a"
rules = ["{rule}"]
"""


def tree(rule="1/s burst 1", more=""):
    return parse(FILE.format(rule=rule, more=more))


def where_it_runs(monkeypatch, module, name, result=None):
    """Have a function of a module replaced by one that notes its thread; give the list of those."""
    threads = []

    def noted(*_arguments, **_keywords):
        threads.append(threading.current_thread())
        return result

    monkeypatch.setattr(module, name, noted)
    return threads


class TestChange:
    """What a reload does."""

    def test_bundles_are_read_by_a_thread(self, monkeypatch):
        """Reading one whole took seconds, in which no request was answered."""
        gate = Gate(tree())
        threads = where_it_runs(monkeypatch, gate_module, "shelf_of")
        asyncio.run(gate.change(tree("2/s")))
        assert len(threads) == 1
        assert threads[0] is not threading.main_thread()
        assert gate.tree.domain[0].rules == ("2/s",)

    def test_the_parent_of_workers_checks_by_a_thread_too(self, monkeypatch):
        threads = where_it_runs(monkeypatch, workers_module, "check_composition")

        async def change():
            async with AsyncExitStack() as closing:
                workers = Workers(tree(), Address("127.0.0.1", 0), closing)
                await workers.change(tree("2/s"))

        asyncio.run(change())
        assert len(threads) == 1
        assert threads[0] is not threading.main_thread()

    def test_requests_that_wait_keep_their_places(self):
        gate = Gate(tree())
        gate.gatekeeper.obey(DelayUntil("a", b"x", 101.0))
        assert gate.gatekeeper.admit("a", b"x", now=100.0).status is Status.DELAYED
        asyncio.run(gate.change(tree("5/s burst 9")))
        gate.gatekeeper.obey(DelayUntil("a", b"x", 101.0))
        assert gate.gatekeeper.delayed == 1
        assert gate.gatekeeper.admit("a", b"x", now=100.0).status is Status.REJECTED

    def test_the_link_carries_the_domains_of_the_new_file(self, monkeypatch):
        carried = []
        monkeypatch.setattr(GatekeeperLink, "change", lambda _, domains: carried.append(list(domains)))
        text = FILE.format(rule="1/s", more='master = "tcp://127.0.0.1:1"')

        async def change():
            gate = Gate(parse(text))
            await gate.change(parse(f'{text}[[domain]]\nname = "b"\n'))
            await gate.end(0)

        asyncio.run(change())
        assert carried == [["a", "b"]]

    def test_what_cannot_be_composed_changes_nothing(self):
        gate = Gate(tree())
        with pytest.raises(ConfigurationError):
            asyncio.run(gate.change(tree(more="identify = 'header:'")))
        assert gate.tree == tree()

    def test_what_only_a_restart_can_change_is_named_and_left(self):
        gate = Gate(tree())
        assert asyncio.run(gate.change(tree(more="workers = 3"))) == ["gate.workers"]
        assert gate.tree.gate.workers == 1


def test_who_is_held_longest_is_found_with_pauses_for_requests():
    """One request for the state looked at every hold: half a second at a million."""
    gate = Gate(tree())
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
        state = await gate.whole_state()
        answering.cancel()
        return state

    held = asyncio.run(main()).domains[0].held
    assert [one.release for one in held] == [4e9 + 19_999 - number for number in range(10)]
    assert held[0].identifier == "10.0.78.31"
    assert turns >= 4
    assert gate.state().domains[0].held == ()
