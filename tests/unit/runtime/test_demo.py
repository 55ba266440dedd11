"""The parts of the demonstration: its figures, its origin and its clients."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from headgate.agent import RetryLater
from headgate.config import Address
from headgate.runtime.demo import PHASES, Agent, Client, Tally, counts, frame, phase_result
from headgate.runtime.demo_origin import DemoOrigin


def tally(offered, sent, *waits, lost=0):
    made = Tally()
    made.offered, made.sent = offered, sent
    for wait in waits:
        made.ended(wait, served=True)
    for _ in range(lost):
        made.ended(0.2, served=False)
    return made


def test_the_figures_of_a_phase_are_rates_and_lost_requests_count_as_the_deadline():
    people = tally(100, 90, *([0.1] * 50), *([0.3] * 48), lost=2)
    found = phase_result(PHASES[0], 2.0, {"people": people, "agents": tally(40, 20, 0.2)}, 0.5)
    assert (found.offered, found.goodput, found.people_served, found.fraction) == (70.0, 49.5, 0.98, 0.5)
    assert found.people_p99_ms == 1000
    one = phase_result(PHASES[0], 1.0, {"people": tally(100, 100, *([0.1] * 99), lost=1), "agents": tally(0, 0)}, None)
    assert one.people_p99_ms == 100
    none = phase_result(PHASES[0], 1.0, {"people": tally(0, 0), "agents": tally(0, 0)}, None)
    assert (none.people_served, none.people_p99_ms) == (1.0, 0)


@asynccontextmanager
async def origin(**options):
    """Run an origin; give the function that makes a person."""
    clients = []

    def client():
        clients.append(Client("people", len(clients), address))
        return clients[-1]

    running = DemoOrigin(**options)
    try:
        address = Address.parse((await running.start()).removeprefix("http://"))
        yield client
    finally:
        for one in clients:
            one.close()
        await running.close()


async def test_workers_serve_requests_in_their_order_also_those_of_clients_that_have_left():
    clock = asyncio.get_running_loop().time
    # Two workers, four requests of 0.2 s: the one whose client has left takes a worker as long.
    async with origin(workers=2, service_time=0.2) as client:
        began = clock()
        left = asyncio.create_task(client().get("/"))
        await asyncio.sleep(0.05)
        left.cancel()
        await asyncio.gather(*(client().get("/") for _ in range(3)))
        assert clock() - began >= 0.4


async def test_a_client_keeps_its_connection_and_drops_one_that_was_given_up():
    async with origin(workers=1, service_time=0.1) as client:
        person = client()
        assert await person.visit(tally(0, 0))
        kept = person._idle[0]
        await person.get("/again")
        assert person._idle == [kept]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await person.get("/slow")
        assert person._idle == []
        assert (await person.get("/"))[0] == 200


async def test_an_agent_fetches_advice_before_its_first_request_and_obeys_retry_after():
    asked, writers, count = [], [], tally(0, 0)

    async def answer(reader, writer):
        writers.append(writer)
        while head := await reader.readline():
            asked.append(head.split()[1])
            await reader.readuntil(b"\r\n\r\n")
            status = "404 Not Found" if b"advice" in head else "503 Service Unavailable\r\nRetry-After: 60"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        agent = Agent("agents", 0, Address(*server.sockets[0].getsockname()), min_freshness=1.0)
        assert not await agent.visit(count)
        with pytest.raises(RetryLater):
            await agent.visit(count)
        agent.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.05)
    assert count.sent == 1
    assert asked == [b"/.well-known/traffic-advice", b"/news"]


def test_a_frame_has_what_happened_since_the_last_one():
    before = counts({"people": tally(10, 10, 0.1, lost=1), "agents": tally(5, 4, 0.1)})
    after = counts({"people": tally(14, 14, 0.1, 0.1, lost=4), "agents": tally(25, 8, 0.1, 0.2)})
    found = frame((3.0, 5.0), (before, after), None)
    assert found == (5.0, 12.0, 4.0, 1.0, 0.25, None)
    assert frame((3.0, 5.0), (after, after), 0.5).people_served == 1.0
