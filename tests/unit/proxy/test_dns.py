"""Lookups of local names, and of name servers that do not answer."""

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

from headgate.proxy.dns import SystemLookup
from headgate.proxy.refusal import Refusal

pytestmark = pytest.mark.usefixtures("run")

CLIENT = b"\xc0\x00\x02\x01"
OTHER = b"\xc0\x00\x02\x02"
FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 0))]


class NameServer:
    """Replaces `getaddrinfo`: "hang…" is answered after `answer_all`."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.hanging = threading.Semaphore(0)
        self.answered = threading.Event()

    def __call__(self, host: bytes, port: None, **more: Any) -> list[Any]:
        assert more == {"type": socket.SOCK_STREAM}
        name = host.decode()
        self.asked[name] += 1
        if name.startswith("hang"):
            self.hanging.release()
            self.answered.wait()
        return FOUND

    async def hang(self, names: int) -> None:
        """Wait until so many more threads wait."""
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


def wait_for_end(before: set[threading.Thread]) -> None:
    """Wait until the threads started since have ended."""
    for thread in threads() - before:
        thread.join(10)
        assert not thread.is_alive()


def reason(refusal: BaseException | object) -> tuple[str, str]:
    assert isinstance(refusal, Refusal)
    return refusal.reason, refusal.rule.error


async def test_addresses_are_unique_in_order_and_without_zones() -> None:
    given = ["2001:db8::1", "192.0.2.1", "fe80::1%eth0", "192.0.2.1", "fe80::1%eth1", "not an address"]

    lookup = SystemLookup(getaddrinfo=lambda *_, **__: [(0, 0, 0, "", (each, 0)) for each in given])
    found = await lookup("a.test", CLIENT)
    assert [*map(str, found)] == ["2001:db8::1", "192.0.2.1", "fe80::1"]


@pytest.mark.parametrize(
    "failure",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        # The resolver's own error numbers overlap with the system's.
        socket.gaierror(errno.EMFILE, "Bad hints"),
        OSError(5, "Input/output error"),
        UnicodeError("label too long"),
        MemoryError(),
        None,
    ],
)
async def test_a_name_without_an_address_is_refused(failure: Exception | None) -> None:
    def fail(*_: Any, **__: Any) -> list[Any]:
        if failure is not None:
            raise failure
        return []

    lookup = SystemLookup(getaddrinfo=fail)
    for _ in range(3):  # a thread outlives what failed
        with pytest.raises(Refusal) as raised:
            await lookup("a.test", CLIENT)
        assert reason(raised.value) == ("name", "dns_error")
        assert raised.value.detail.startswith("a.test ")


async def test_concurrent_lookups_of_a_name_are_shared(server: NameServer) -> None:
    """A popular name whose name server does not answer occupies one thread."""

    lookup = SystemLookup(getaddrinfo=server, threads=2)
    asking = [asyncio.create_task(lookup("hang.test", client)) for client in (CLIENT, OTHER) for _ in range(20)]
    await server.hang(1)
    asking[0].cancel()  # the caller that started it leaves, the others still wait
    assert await lookup("a.test", OTHER)
    server.answer_all()
    assert len(await asyncio.gather(*asking[1:])) == 39
    assert server.asked["hang.test"] == 1
    assert not lookup._pending
    assert (len(lookup._clients), lookup._running) == (0, {})


async def test_a_client_delays_only_its_own_lookups(server: NameServer) -> None:
    before = threads()
    lookup = SystemLookup(getaddrinfo=server, threads=4, client_threads=2, timeout=60)
    held = [asyncio.create_task(lookup(f"hang{number}.test", CLIENT)) for number in range(50)]
    await server.hang(2)
    assert len(threads() - before) == 2
    for name in ("www.good.test", "hello.test", "localhost"):
        assert await lookup(name, OTHER) == (ip_address("93.184.216.34"),)
    mine = asyncio.create_task(lookup("good.test", CLIENT))
    await asyncio.sleep(0)
    assert not server.asked["good.test"]  # it waits for the other lookups of the client
    server.answer_all()
    assert await mine
    assert len(await asyncio.gather(*held)) == 50
    assert (len(lookup._clients), lookup._running) == (0, {})


async def test_a_few_networks_do_not_use_up_all_threads(server: NameServer) -> None:
    """Each /64 is a client; those of a /48 share the threads that are not reserved, however many they are."""
    lookup = SystemLookup(getaddrinfo=server, threads=8, client_threads=2, timeout=60)
    sites = [bytes([0x20, 0x01, 0x0D, 0xB8, 0, site]) for site in range(3)]
    held = [
        asyncio.create_task(lookup(f"hang{number}.{subnet}.{site[-1]}.test", site + bytes([0, subnet])))
        for site in sites
        for subnet in range(16)
        for number in range(2)
    ]
    await server.hang(4 + 2)  # the half that is not reserved, and one for each further site
    for client in (CLIENT, OTHER, b"\x20\x01\x0d\xb8\0\x03\0\0"):
        assert await asyncio.wait_for(lookup(f"a{client[-1]}.test", client), 10)
    assert lookup._free == 2
    server.answer_all()
    assert len(await asyncio.gather(*held)) == len(held)
    assert (lookup._free, lookup._running) == (8, {})


async def test_cancelled_callers_leave_only_their_threads(server: NameServer) -> None:
    before = threads()
    lookup = SystemLookup(getaddrinfo=server, threads=2, timeout=60)
    tasks = [asyncio.create_task(lookup(f"hang{number}.test", bytes([number % 5]))) for number in range(100)]
    await server.hang(2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    tasks.clear()
    del task
    late = asyncio.create_task(lookup("late.test", CLIENT))
    await asyncio.sleep(0)
    assert not server.asked["late.test"]
    server.answer_all()
    assert await late
    assert sum(server.asked.values()) == 3  # those that left before their turn were not looked up
    await asyncio.to_thread(wait_for_end, before)
    assert not lookup._pending
    assert (len(lookup._clients), lookup._running) == (0, {})


async def test_running_out_of_threads_is_a_local_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = SystemLookup(threads=1, client_threads=1)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(3):  # no slot is lost
            with pytest.raises(Refusal) as raised:
                await lookup("localhost", CLIENT)
    assert raised.value.reason == "connections"
    assert await lookup("localhost", CLIENT)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_running_out_of_descriptors_is_a_local_failure(number: int) -> None:
    def fail(*_: Any, **__: Any) -> list[Any]:
        raise OSError(number, os.strerror(number))

    lookup = SystemLookup(getaddrinfo=fail)
    with pytest.raises(Refusal) as raised:
        await lookup("a.test", CLIENT)
    assert (raised.value.reason, raised.value.rule.status) == ("connections", 503)
    assert raised.value.detail == f"a.test does not resolve: {os.strerror(number)}"


EXIT = """
import asyncio, threading
from headgate.proxy.dns import SystemLookup
from headgate.proxy.refusal import Refusal

never = threading.Event()

async def main():
    lookup = SystemLookup(getaddrinfo=lambda *_, **__: never.wait(), timeout=0.01)
    try:
        await lookup("hang.test", b"client")
    except Refusal as refusal:
        print(refusal.rule.error)

asyncio.run(main())
"""


def test_the_exit_does_not_wait_for_lookups() -> None:
    told = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "dns_timeout\n"
    assert told.stderr == ""


def test_a_result_after_the_loop_has_closed_is_dropped(server: NameServer) -> None:
    before = threads()

    async def main() -> None:
        lookup = SystemLookup(getaddrinfo=server, timeout=0.01)
        with pytest.raises(Refusal):
            await lookup("hang.test", CLIENT)

    asyncio.run(main())
    assert len(threads() - before) == 1
    server.answer_all()
    wait_for_end(before)
