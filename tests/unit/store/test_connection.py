"""A connection to a server that replies as a script says, command by command."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from headgate.config.section import Address
from headgate.config.store_url import StoreUrl
from headgate.store import connection as module
from headgate.store import library
from headgate.store.connection import ClusterDown, Migrating, Moved, NotLoaded, SlotRange, StoreError, connect

URL = StoreUrl((Address("127.0.0.1", 1),))
MISSING = b"-ERR Function not found\r\n"
EMPTY = b"$0\r\n\r\n"
NO_CLUSTER = b"-ERR This instance has cluster support disabled\r\n"
OK_CLUSTER = b"$18\r\ncluster_state:ok\r\n\r\n"
HANDSHAKE = {b"CLIENT": b"+OK\r\n"}


class Scripted:
    """A server; `replies` has a list of replies for each command, the last one of which is repeated."""

    def __init__(self, replies):
        self.replies = {name: list(given) if isinstance(given, list) else [given] for name, given in replies.items()}
        self.commands = []

    @asynccontextmanager
    async def listening(self):
        """Yield the address of the server; wait for its connections to end."""
        handlers = []

        async def handle(reader, writer):
            handlers.append(asyncio.current_task())
            await self.serve(reader, writer)

        async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
            yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
        await asyncio.gather(*handlers)

    async def serve(self, reader, writer):
        try:
            while line := await reader.readline():
                words = []
                for _ in range(int(line[1:])):
                    size = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(size + 2))[:-2])
                reply = HANDSHAKE.get(words[0])
                if reply is None:
                    self.commands.append(words)
                    left = self.replies[words[0]]
                    reply = left.pop(0) if len(left) > 1 else left[0]
                if reply is None:
                    return
                writer.write(reply)
                await writer.drain()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def run(steps, **replies):
    """Run `steps` with an open connection; return the commands that it sent."""

    scripted = Scripted({name.encode(): reply for name, reply in replies.items()})

    async def main():
        async with scripted.listening() as address:
            opened = await connect(URL, address)
            try:
                await steps(opened)
            finally:
                await opened.close()

    asyncio.run(main())
    return scripted.commands


def fails(operation, reason, **replies):
    """Assert that an operation raises a `StoreError` with this reason."""

    async def steps(opened):
        with pytest.raises(StoreError, match=reason):
            await operation(opened)

    return run(steps, **replies)


def prepare(opened):
    return opened.prepare()


def slots(opened):
    return opened.slots()


def test_library_that_is_there_is_not_loaded():
    async def steps(opened):
        assert not await opened.prepare()

    ((name, function, keys, *_),) = run(steps, FCALL=EMPTY)
    assert (name, function, keys) == (b"FCALL", library.RECORD, b"0")


def test_library_that_is_missing_is_loaded():
    async def steps(opened):
        assert await opened.prepare()

    commands = run(steps, FCALL=[MISSING, EMPTY], FUNCTION=b"$1\r\nx\r\n")
    assert commands[1] == [b"FUNCTION", b"LOAD", library.CODE.encode()]


def test_library_that_another_master_has_loaded_is_used():
    async def steps(opened):
        assert await opened.prepare()

    run(steps, FCALL=[MISSING, EMPTY], FUNCTION=b"-ERR Library 'x' already exists\r\n")


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ({"FCALL": MISSING, "FUNCTION": b"$1\r\nx\r\n"}, "lost as soon as it is loaded"),
        ({"FCALL": MISSING, "FUNCTION": b"-ERR unknown command\r\n"}, "Redis 7 or Valkey is needed"),
        ({"FCALL": MISSING, "FUNCTION": None}, "."),
        ({"FCALL": b"-READONLY You can't write against a read only replica.\r\n"}, "read only replica"),
        ({"FCALL": b"-OOM command not allowed\r\n"}, "command not allowed"),
        ({"FCALL": b"-LOADING Redis is loading\r\n"}, "loading"),
        ({"FCALL": b":1\r\n"}, "unexpected reply 1"),
        ({"FCALL": None}, "."),
    ],
)
def test_server_that_cannot_be_prepared(replies, reason):
    fails(prepare, reason, **replies)


def test_slots_of_a_cluster():
    """A node that does not know its own name is the one that answers."""
    known = b"*4\r\n:0\r\n:5\r\n*3\r\n$1\r\nh\r\n:7001\r\n$1\r\nx\r\n*3\r\n$1\r\nr\r\n:7009\r\n$1\r\ny\r\n"
    unnamed = b"*3\r\n:6\r\n:9\r\n*3\r\n$0\r\n\r\n:7002\r\n$1\r\nz\r\n"

    async def steps(opened):
        expected = [SlotRange(0, 5, Address("h", 7001)), SlotRange(6, 9, Address("127.0.0.1", 7002))]
        assert await opened.slots() == expected

    run(steps, CLUSTER=[b"*2\r\n" + known + unnamed, OK_CLUSTER])


@pytest.mark.parametrize("reply", [NO_CLUSTER, b"-ERR unknown command 'CLUSTER'\r\n"])
def test_server_outside_a_cluster_has_no_slots(reply):
    async def steps(opened):
        assert await opened.slots() == []

    run(steps, CLUSTER=reply)


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ([b"*0\r\n", b"$20\r\ncluster_state:fail\r\n\r\n"], "the cluster is down"),
        ([b"-NOPERM this user has no permissions\r\n"], "no permissions"),
        ([None], "."),
    ],
)
def test_slots_that_cannot_be_read(replies, reason):
    fails(slots, reason, CLUSTER=replies)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"$2\r\nab\r\n", b"ab"),
        (b"-MOVED 12 10.0.0.1:7000\r\n", Moved(12, Address("10.0.0.1", 7000))),
        (b"-CLUSTERDOWN The cluster is down\r\n", ClusterDown("The cluster is down")),
        (b"-CLUSTERDOWN Hash slot not served\r\n", ClusterDown("Hash slot not served")),
        (b"-ASK 12 10.0.0.1:7000\r\n", Migrating()),
        (b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", Migrating()),
        (MISSING, NotLoaded()),
    ],
)
def test_replies(reply, expected):
    async def steps(opened):
        await opened.send([(b"FCALL", b"x"), (b"FCALL", b"y")])
        assert [await opened.receive(), await opened.receive()] == [expected] * 2

    assert run(steps, FCALL=reply) == [[b"FCALL", b"x"], [b"FCALL", b"y"]]


def test_server_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.05)

    async def receive(opened):
        await opened.send([(b"FCALL", b"x")])
        await opened.receive()

    fails(receive, "Timeout reading", FCALL=b"")


def test_address_where_nothing_listens():
    async def main():
        async with Scripted({}).listening() as address:
            pass
        with pytest.raises(StoreError, match="Connect call failed"):
            await connect(URL, address)

    asyncio.run(main())


def test_server_that_accepts_and_says_nothing(monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    url = StoreUrl(URL.addresses, password="secret")

    async def main():
        async with Scripted({b"AUTH": b""}).listening() as address:
            with pytest.raises(StoreError, match=r"Timeout|no connection in"):
                await connect(url, address)

    asyncio.run(main())
