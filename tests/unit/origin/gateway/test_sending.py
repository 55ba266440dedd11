import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.origin.gateway.sending import Sending
from headgate.origin.part import OpenFile, Part

CONTENT = b"".join(b"%07d\n" % number for number in range(100_000))


class Transport:
    """A transport without a socket: takes everything, and holds its writer back when `slow`."""

    def __init__(self) -> None:
        self.written = b""
        self.largest = 0
        self.buffered = 0
        self.slow = False
        self.closing = False
        self.paused: Callable[[], None] = lambda: None
        self.limits: list[int | None] = []
        self.extra: dict[str, Any] = {}

    def write(self, data: bytes) -> None:
        self.written += data
        self.largest = max(self.largest, len(data))
        if self.slow:
            self.buffered = len(data)
            self.paused()

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def get_extra_info(self, name: str) -> Any:
        return self.extra.get(name)

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        self.limits.append(high)

    def is_closing(self) -> bool:
        return self.closing


class Agent:
    """The connection, as far as a sending calls it."""

    def __init__(self) -> None:
        self.watched = 0
        self.ended: list[bool] = []
        self.aborted = 0

    def watch(self) -> None:
        self.watched += 1

    def exchange_ended(self, *, unread: bool) -> None:
        self.ended.append(unread)

    def abort(self) -> None:
        self.aborted += 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def make(path: Path, transport: Any, agent: Any, *, unread: bool = False) -> Sending:
    return Sending(agent, transport, Part(OpenFile(path), 100, len(CONTENT) - 100), unread=unread)


async def turns(count: int = 100) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("unread", [False, True])
def test_all_of_the_part_is_sent_in_pieces_and_then_told(path: Path, unread: bool) -> None:
    async def check() -> None:
        transport, agent = Transport(), Agent()
        make(path, transport, agent, unread=unread).start()
        assert transport.written == b""  # not before others had a turn
        await turns()
        assert transport.written == CONTENT[100:]
        assert transport.largest == 131_072
        assert agent.ended == [unread]
        assert agent.watched == -(-len(CONTENT) // 131_072) + 1

    asyncio.run(check())


def test_the_system_copies_to_a_plain_socket_all_but_the_last_piece(path: Path) -> None:
    async def check(limits: list[int | None], read: bytes, **extra: object) -> None:
        transport, agent = Transport(), Agent()
        near, far = socket.socketpair()
        with near, far:
            far.setblocking(False)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(CONTENT))
            transport.extra = {"socket": near, **extra}
            make(path, transport, agent).start()
            await turns()
            assert agent.ended == [False]
            assert transport.written == read
            if read != CONTENT[100:]:
                assert far.recv(len(CONTENT), socket.MSG_WAITALL) == CONTENT[100 : -len(read)]
        # Held whenever anything is buffered, so that what comes next can go the same way.
        assert transport.limits == limits

    asyncio.run(check([0, None], CONTENT[-131_072:]))
    asyncio.run(check([None], CONTENT[100:], ssl_object=object()))


def test_a_slow_agent_is_waited_for_and_each_step_counts_as_progress(path: Path) -> None:
    async def check() -> None:
        transport, agent = Transport(), Agent()
        sending = make(path, transport, agent)
        transport.slow, transport.paused = True, sending.hold_origin
        sending.start()
        steps = 0
        while not agent.ended:
            await turns()
            assert len(transport.written) <= (steps + 1) * 131_072
            assert agent.watched == steps + 1
            steps += 1
            transport.buffered = 0
            sending.release_origin()
            assert len(transport.written) <= steps * 131_072  # not within the call, which asyncio cannot bear
            await asyncio.sleep(0)
        assert transport.written == CONTENT[100:]

    asyncio.run(check())


def test_nothing_is_sent_when_the_agent_is_gone_or_the_connection_closes(path: Path) -> None:
    async def check() -> None:
        for leave in (lambda one, _: one.abandon(), lambda _, transport: setattr(transport, "closing", True)):
            transport, agent = Transport(), Agent()
            sending = make(path, transport, agent)
            sending.start()
            await asyncio.sleep(0)
            leave(sending, transport)
            sent = len(transport.written)
            await turns()
            assert len(transport.written) == sent
            assert agent.ended == []

    asyncio.run(check())


def test_a_file_that_is_written_to_ends_the_connection(path: Path) -> None:
    async def check() -> None:
        transport, agent = Transport(), Agent()
        sending = make(path, transport, agent)
        transport.slow, transport.paused = True, sending.hold_origin
        sending.start()
        await turns()
        path.write_bytes(CONTENT + b"more")  # noqa: ASYNC240 - a test may wait for its disk
        transport.buffered = 0
        sending.release_origin()
        await turns()
        assert (agent.aborted, agent.ended) == (1, [])
        assert len(transport.written) == 131_072

    asyncio.run(check())


def test_when_nothing_moves_it_gives_up(path: Path) -> None:
    agent = Agent()
    sending = make(path, Transport(), agent)
    sending.give_up()
    assert agent.aborted == 1
    assert sending.feed(b"x") == b"x"
