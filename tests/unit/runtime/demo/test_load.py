import asyncio
import logging

import pytest
import trustme
from msgspec.structs import replace

from headgate.runtime.demo import load as load_module
from headgate.runtime.demo.load import LoadConfiguration, LoadProcess
from headgate.runtime.demo.measure import Tally
from tests.unit.runtime.demo.serving import asynchronous


@pytest.fixture(autouse=True)
def certificate(tmp_path, monkeypatch):
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "cert.pem"))
    monkeypatch.chdir(tmp_path)


def configuration(server, **changes):
    made = LoadConfiguration(
        number=0,
        kind="people",
        clients=3,
        rate=400.0,
        target=server.target,
        proxies=(),
        certificate="cert.pem",
        deadline=5.0,
        min_freshness=1.0,
        seed=1,
    )
    return replace(made, **changes)


async def tally_when(load, reached):
    while True:
        tally = (await load.state(whole=True)).tally
        if reached(tally):
            return tally.plus(Tally())  # as it is now; the state goes on
        await asyncio.sleep(0.01)


@asynchronous
async def test_requests_are_sent_at_the_rate_and_counted(server):
    load = LoadProcess(configuration(server))
    await load.start()
    tally = await tally_when(load, lambda tally: tally.served >= 20)
    await load.close()
    assert tally.offered >= tally.sent >= tally.served
    assert tally.lost == 0
    assert 1 <= server.connections <= tally.offered


@asynchronous
async def test_clients_that_leave_a_target_lose_what_they_wait_for(server):
    server.answer = None
    load = LoadProcess(configuration(server))
    await load.start()
    await tally_when(load, lambda tally: tally.offered >= 10)
    elsewhere = replace(server.target, host="elsewhere")
    await load.reload(configuration(server, number=1, rate=0.0, target=elsewhere))
    state = await load.state(whole=True)
    assert state.number == 1
    assert state.tally.served == 0
    assert state.tally.lost == state.tally.offered >= 10
    await asyncio.sleep(0.05)
    assert (await load.state(whole=True)).tally.offered == state.tally.offered
    await load.close()


@asynchronous
async def test_a_change_of_the_rate_loses_nothing(server):
    server.answer = None
    load = LoadProcess(configuration(server))
    await load.start()
    await tally_when(load, lambda tally: tally.offered >= 10)
    await load.reload(configuration(server, number=1, rate=0.0))
    assert (await load.state(whole=True)).tally.lost == 0
    await load.close()


@asynchronous
async def test_requests_beyond_a_maximum_are_lost_at_once(server):
    server.answer = None
    load = LoadProcess(configuration(server))
    for _ in range(2_005):
        load._visits.add(object())
    load._begin_visit(1)
    tally = (await load.state(whole=True)).tally
    assert (tally.offered, tally.lost, tally.sent) == (1, 1, 0)


def test_warnings_of_the_agent_library_are_not_printed(monkeypatch, capfd):
    package = logging.getLogger("headgate")
    monkeypatch.setattr(package, "handlers", [])
    monkeypatch.setattr(package, "propagate", False)
    monkeypatch.setattr(load_module, "run_worker", lambda *_: 0)
    assert load_module.main() == 0
    logging.getLogger("headgate.agent").warning("a fetch has failed")
    assert capfd.readouterr().err == ""
