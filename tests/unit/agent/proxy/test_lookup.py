"""Threads that ask the system's resolver: real names of this machine's, and name servers that do not answer."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_address
from typing import Any

import pytest
import uvloop

from headgate.agent.proxy.lookup import SystemLookup
from headgate.agent.proxy.refusal import Refusal

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 0))]


class NameServer:
    """In the place of `getaddrinfo`: names that begin with "hang" are not answered before `answer_all`."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.asking: set[threading.Thread] = set()
        self.hanging = threading.Semaphore(0)
        self.answered = threading.Event()

    def __call__(self, host: bytes, port: None, **more: Any) -> list[Any]:
        assert more == {"type": socket.SOCK_STREAM}
        name = host.decode()
        self.asked[name] += 1
        self.asking.add(threading.current_thread())
        if name.startswith("hang"):
            self.hanging.release()
            self.answered.wait()
        return FOUND

    async def hang(self, names: int) -> None:
        """Wait until so many more threads wait for an answer."""
        for _ in range(names):
            assert await asyncio.to_thread(self.hanging.acquire, timeout=10)

    def answer_all(self) -> None:
        self.answered.set()


@pytest.fixture
def server() -> Iterator[NameServer]:
    serving = NameServer()
    yield serving
    serving.answer_all()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Awaitable[None]], None]]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "headgate-lookup"}


def ended(before: set[threading.Thread]) -> None:
    """Wait until the threads that have come since are gone."""
    for thread in threads() - before:
        thread.join(10)
        assert not thread.is_alive()


def reason(refusal: BaseException | object) -> tuple[str, str]:
    assert isinstance(refusal, Refusal)
    return refusal.reason, refusal.answer.error


def test_the_system_is_asked(run: Any) -> None:
    async def main() -> None:
        lookup = SystemLookup()
        assert ip_address("127.0.0.1") in await lookup("localhost")
        lookup.close()

    before = threads()
    run(main())
    ended(before)


def test_every_address_comes_once_in_order_and_without_its_zone(run: Any) -> None:
    given = ["2001:db8::1", "192.0.2.1", "fe80::1%eth0", "192.0.2.1", "fe80::1%eth1", "not an address"]

    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=lambda *_, **__: [(0, 0, 0, "", (each, 0)) for each in given])
        found = await lookup("a.test")
        assert [*map(str, found)] == ["2001:db8::1", "192.0.2.1", "fe80::1"]
        lookup.close()

    run(main())


@pytest.mark.parametrize(
    "failure",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        # On some systems a resolver's own numbers are others' for what a process lacks.
        socket.gaierror(errno.EMFILE, "Bad hints"),
        OSError(5, "Input/output error"),
        UnicodeError("label too long"),
        MemoryError(),
        None,
    ],
)
def test_a_name_without_an_address_is_refused(run: Any, failure: Exception | None) -> None:
    def fail(*_: Any, **__: Any) -> list[Any]:
        if failure is not None:
            raise failure
        return []

    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=fail)
        for _ in range(3):  # a thread outlives what failed
            with pytest.raises(Refusal) as raised:
                await lookup("a.test")
            assert reason(raised.value) == ("name", "dns_error")
            assert raised.value.why.startswith("a.test ")
        lookup.close()

    run(main())


def test_nothing_is_remembered(run: Any, server: NameServer) -> None:
    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=server)
        for _ in range(3):
            await lookup("a.test")
        await asyncio.gather(*(lookup("a.test") for _ in range(3)))
        assert server.asked["a.test"] == 6
        lookup.close()

    run(main())


def test_a_name_server_that_does_not_answer_is_not_waited_for(run: Any, server: NameServer) -> None:
    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=server, seconds=0.01)
        with pytest.raises(Refusal) as raised:
            await lookup("hang.test")
        assert reason(raised.value) == ("name", "dns_timeout")
        lookup.close()

    run(main())


def test_what_nobody_waits_for_any_more_is_known_to_go_on(run: Any, server: NameServer) -> None:
    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=server, most=1)
        assert lookup.under_way("hang.test") is None
        asking = asyncio.create_task(lookup("hang.test"))
        behind = asyncio.create_task(lookup("other.test"))
        await server.hang(1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        under_way = lookup.under_way("hang.test")
        assert under_way is not None
        assert not under_way.done()
        assert lookup.under_way("other.test") is None, "it has no thread yet"
        server.answer_all()
        await under_way
        assert lookup.under_way("hang.test") is None
        await behind
        assert lookup.under_way("other.test") is None
        lookup.close()

    run(main())


def test_it_holds_up_its_own_names_alone(run: Any, server: NameServer) -> None:
    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=server, most=4, most_alike=2, seconds=60)
        held = [asyncio.create_task(lookup(f"hang{number}.bad.test")) for number in range(50)]
        await server.hang(2)
        for name in ("www.good.test", "good.test", "localhost", "other.tset"):
            assert await lookup(name) == (ip_address("93.184.216.34"),)
        beside = asyncio.create_task(lookup("www.bad.test."))
        await asyncio.sleep(0)
        assert len(lookup._waiting["bad.test"]) == 49  # its turn comes when its name server answers
        server.answer_all()
        assert await beside
        assert len(await asyncio.gather(*held)) == 50
        lookup.close()

    run(main())


def test_no_more_threads_than_allowed_and_whoever_waits_gets_a_turn(run: Any, server: NameServer) -> None:
    async def main() -> None:
        before = threads()
        lookup = SystemLookup(getaddrinfo=server, most=3, most_alike=3, seconds=60)
        waiting = [asyncio.create_task(lookup(f"hang.a{number}.test")) for number in range(9)]
        await server.hang(3)
        assert len(threads() - before) == 3
        assert sum(server.asked.values()) == 3
        server.answer_all()
        await asyncio.gather(*waiting)
        assert sum(server.asked.values()) == 9
        lookup.close()
        await asyncio.to_thread(ended, before)

    run(main())


def test_endings_take_turns(run: Any, server: NameServer) -> None:
    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=server, most=1, seconds=60)
        order: list[str] = []

        async def ask(name: str) -> None:
            await lookup(name)
            order.append(name)

        first = asyncio.create_task(lookup("hang.test"))
        await server.hang(1)
        names = ["1.a.test", "2.a.test", "3.a.test", "1.b.test", "2.b.test"]
        tasks = [asyncio.create_task(ask(name)) for name in names]
        await asyncio.sleep(0)
        server.answer_all()
        await asyncio.gather(first, *tasks)
        assert order == ["1.a.test", "1.b.test", "2.a.test", "2.b.test", "3.a.test"]
        lookup.close()

    run(main())


def test_who_leaves_leaves_nothing_behind(run: Any, server: NameServer) -> None:
    async def main() -> None:
        before = threads()
        lookup = SystemLookup(getaddrinfo=server, most=2, most_alike=2, seconds=60)
        tasks = [asyncio.create_task(lookup(f"hang{number}.test{number % 5}")) for number in range(100)]
        await server.hang(2)
        for task in tasks:
            task.cancel()
        gone = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in gone)
        assert not lookup._waiting
        late = asyncio.create_task(lookup("late.test"))
        await asyncio.sleep(0)
        server.answer_all()
        assert await late
        assert sum(server.asked.values()) == 3  # of those who left before their turn, none was looked up
        lookup.close()
        await asyncio.to_thread(ended, before)
        assert not lookup._busy
        assert not lookup._running

    run(main())


def test_threads_are_used_again_and_few_are_kept(run: Any, server: NameServer) -> None:
    async def main() -> None:
        before = threads()
        lookup = SystemLookup(getaddrinfo=server, most=20, most_alike=20)
        tasks = [asyncio.create_task(lookup(f"hang{number}.test")) for number in range(20)]
        await server.hang(20)
        server.answer_all()
        await asyncio.gather(*tasks)
        for _ in range(50):
            await lookup("a.test")
        assert lookup._idle == 4
        assert len(server.asking) == 20
        for _ in range(1000):  # sixteen are told to end, and do in their own time
            if len(threads() - before) == 4:
                break
            await asyncio.sleep(0.01)
        assert len(threads() - before) == 4
        lookup.close()
        await asyncio.to_thread(ended, before)

    run(main())


def test_a_system_out_of_threads_is_the_proxys_load(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        lookup = SystemLookup()

        def start(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(Refusal) as raised:
                await lookup("localhost")
        assert raised.value.reason == "connections"
        assert await lookup("localhost")
        lookup.close()

    run(main())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_system_out_of_files_is_the_proxys_load(run: Any, number: int) -> None:
    def fail(*_: Any, **__: Any) -> list[Any]:
        raise OSError(number, os.strerror(number))

    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=fail)
        with pytest.raises(Refusal) as raised:
            await lookup("a.test")
        assert (raised.value.reason, raised.value.answer.status) == ("connections", 503)
        assert raised.value.why == f"a.test does not resolve: {os.strerror(number)}"
        lookup.close()

    run(main())


EXIT = """
import asyncio, threading
from headgate.agent.proxy.lookup import SystemLookup
from headgate.agent.proxy.refusal import Refusal

never = threading.Event()

async def main():
    lookup = SystemLookup(getaddrinfo=lambda *_, **__: never.wait(), seconds=0.01)
    try:
        await lookup("hang.test")
    except Refusal as refusal:
        print(refusal.answer.error)

asyncio.run(main())
"""


def test_no_exit_waits_for_a_name_server() -> None:
    told = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "dns_timeout\n"
    assert told.stderr == ""


def test_an_answer_behind_the_end_of_the_loop_hurts_nobody(server: NameServer) -> None:
    before = threads()

    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=server, seconds=0.01)
        with pytest.raises(Refusal):
            await lookup("hang.test")

    asyncio.run(main())
    assert len(threads() - before) == 1
    server.answer_all()
    ended(before)
