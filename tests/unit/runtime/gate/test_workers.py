"""A supervisor of gates that is reloaded, without processes."""

import asyncio
import threading

from headgate.observe import DomainState, State
from headgate.runtime.gate import workers as module
from headgate.runtime.gate.workers import GateWorkers
from tests.unit.runtime.gate.test_process import configuration, record_threads, tree


def test_reload_checks_bundles_in_a_thread(monkeypatch):
    workers = GateWorkers(configuration(tree()))
    threads = record_threads(monkeypatch, module, "check_composition")
    asyncio.run(workers.reload(configuration(tree("2/s"))))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert workers.configuration(0).configuration.tree.domain[0].rules == ("2/s",)


def test_keys_that_need_a_restart_are_kept():
    workers = GateWorkers(configuration(tree()))
    asyncio.run(workers.reload(configuration(tree(more="workers = 3"))))
    assert workers.configuration(0).configuration.tree.gate.workers == 1


def test_totals_of_a_worker_that_has_ended_are_kept():
    class Ended:
        last_state = State((DomainState("a", accepted=2),), delayed_now=1, connections=3)

    workers = GateWorkers(configuration(tree()))
    workers.on_worker_exit(Ended)
    workers.on_worker_exit(Ended)
    state = asyncio.run(workers.state(whole=False))
    assert (state.domains[0].accepted, state.delayed_now, state.connections, state.workers) == (4, 0, 0, 0)
