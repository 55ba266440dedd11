"""The gRPC server with a real client of gRPC, and a model of the rest of a master."""

import asyncio
import socket
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from headgate.config import Address
from headgate.errors import ConfigurationError
from headgate.rlqs.server import QuotaServer
from headgate.rlqs.table import QuotaLimits
from headgate.runtime.lifecycle import event_loop_factory
from tests.unit.rlqs.envoys import METHOD, World, bucket_id, decode_actions, encode_report

FIRST = encode_report(b"api", [(bucket_id(b"c"), 0, 1, 0)])
PATIENCE = 30.0


@asynccontextmanager
async def served(*, limits=None, **options):
    """Serve a world; give it, its server, and a function that opens a stream."""
    world, errors = World("10/s burst 20", limits=limits), []
    address = Address("127.0.0.1", 0)
    server = QuotaServer(world.service, address, log=errors.append, clock=lambda: world.now, **options)
    await server.start()
    try:
        async with asyncio.timeout(PATIENCE), grpc.aio.insecure_channel(str(server.address)) as channel:
            yield world, server, channel.stream_stream(METHOD)
    finally:
        await server.close()
    assert not errors


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Return the function that runs a test on each event loop there is."""
    with asyncio.Runner(loop_factory=event_loop_factory(request.param)) as runner:
        yield runner.run


async def test_reports_are_answered_and_controls_pushed():
    async with served() as (world, server, connect):
        call = connect()
        await call.write(FIRST)
        ((_, kind, _),) = decode_actions(await call.read())
        assert kind == "tokens"
        server.on_control("api", b"c", world.now + 100.0)
        assert decode_actions(await call.read()) == [(bucket_id(b"c"), "deny", {"ttl": 100})]
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert len(world.service.table.streams) == 0


async def test_a_hold_is_lifted_when_it_ends(run):
    async with served() as (world, server, connect):
        call = connect()
        await call.write(FIRST)
        await call.read()
        server.on_control("api", b"c", world.now + 1.0)
        kinds = [decode_actions(await call.read())[0][1] for _ in range(2)]
        assert kinds == ["deny", "tokens"]


async def test_a_stream_that_the_end_of_the_server_stops_is_no_internal_error():
    async with served() as (world, server, connect):
        ends = asyncio.Queue()

        def receive(*_arguments, **_more):
            ends.put_nowait(asyncio.get_running_loop().create_task(server.close()))
            yield
            raise RuntimeError("Server already stopped")

        world.service.receive = receive
        await connect().write(FIRST)
        await (await ends.get())
        assert len(world.service.table.streams) == 0


async def test_a_stream_beyond_the_limit_is_refused():
    async with served(limits=QuotaLimits(streams=1)) as (world, _server, connect):
        first = connect()
        await first.write(FIRST)
        await first.read()
        assert await connect().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(world.service.table.streams) == 1


@pytest.mark.parametrize(("size", "counted"), [(5, 1), (9, 0)])
async def test_a_message_that_is_too_large_ends_its_stream_only(size, counted):
    async with served() as (world, _server, connect):
        calls = [connect(), connect()]
        await calls[0].write(bytes(size * 1024 * 1024))
        assert await calls[0].code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert world.service.counters.reports["oversized"] == counted
        await calls[1].write(FIRST)
        assert decode_actions(await calls[1].read())


async def test_a_stream_that_never_reports_ends():
    async with served(first_report=0.5) as (world, _server, connect):
        reporting, silent = connect(), connect()
        await reporting.write(FIRST)
        assert await silent.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await silent.details() == "no report for 0.5 s"
        assert (len(world.service.table.streams), world.service.counters.streams["silent"]) == (1, 1)
        await reporting.write(FIRST)
        assert decode_actions(await reporting.read())


async def test_the_loop_goes_on_while_a_large_message_is_processed():
    async with served() as (world, _server, connect):
        call = connect()
        await call.write(encode_report(b"api", [(bucket_id(b"%d" % number), 0, 1, 0) for number in range(2_000)]))
        seen = set()
        while len(world.service.table) < 2_000:
            seen.add(len(world.service.table))
            await asyncio.sleep(0)
        assert len(seen) > 20


def test_an_address_that_is_taken():
    async def run(port):
        server = QuotaServer(World().service, Address("127.0.0.1", port), log=print)
        with pytest.raises(ConfigurationError, match=f"cannot listen at 127.0.0.1:{port}"):
            await server.start()
        await server.close()

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(run(taken.getsockname()[1]))
