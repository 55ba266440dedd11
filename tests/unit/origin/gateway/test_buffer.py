"""Buffers in memory and in files: a queue, its bounds, and how it is sent."""

import errno
import os
import tempfile
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.tree import Bounds, Gate
from headgate.origin.gateway.buffer import PIECE_SIZE, PIECES_PER_TURN, Buffers, BufferSpace, SpooledBuffer
from headgate.origin.gateway.record import GatewayCounters
from headgate.origin.gateway.settings import GatewaySettings
from tests.unit.origin.gateway.stub import turns


def make_space(memory: int = 1 << 20, files: int = 1 << 20) -> tuple[BufferSpace, list[str]]:
    said: list[str] = []
    return BufferSpace("response", memory, files, GatewayCounters(), said.append), said


@mock.patch("headgate.origin.gateway.buffer.PIECE_SIZE", 7)
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.just(None)), max_size=60),
    st.integers(0, 50),
    st.integers(0, 90),
    st.integers(0, 60),
    st.integers(0, 90),
)
def test_what_goes_in_comes_out_in_order_and_the_space_is_given_back(
    steps: list[bytes | None], memory: int, file: int, all_memory: int, all_files: int
) -> None:
    """Each step appends bytes or takes some, whatever finds room where."""
    space, _ = make_space(all_memory, all_files)
    buffer = SpooledBuffer(space, memory=memory, file=file)
    put = taken = b""
    for data in steps:
        if data is None:
            taken += buffer.take()
        elif data:
            had_room = buffer.append(data)
            put += data
            assert had_room or not buffer.has_room
        assert len(buffer) == len(put) - len(taken)
        assert space.files >= max(0, all_files - file)
        assert space.memory >= 0 or not buffer.has_room
    while len(buffer):
        taken += buffer.take()
    assert taken == put
    assert (space.memory, space.files) == (all_memory, all_files)
    buffer.append(b"some")
    buffer.close()
    assert (space.memory, space.files) == (all_memory, all_files)


@mock.patch("headgate.origin.gateway.buffer.PIECE_SIZE", 7)
def test_a_file_is_a_ring_that_has_room_again_when_half_is_taken() -> None:
    space, _ = make_space()
    buffer = SpooledBuffer(space, memory=0, file=20)
    content = bytes(range(256))
    assert buffer.append(content[:20])
    assert not buffer.append(content[20:21])
    taken = b""
    while len(taken) < 21:
        assert not buffer.has_room
        taken += buffer.take()
    assert taken == content[:21]
    taken, put = b"", 15
    assert buffer.append(content[:15])
    while put < 256:
        while not buffer.has_room:
            taken += buffer.take()
        assert buffer.append(content[put : put + 7])
        put += 7
    assert taken == content[: len(taken)]
    assert 0 < len(taken) < 256
    assert space.files == (1 << 20) - 20
    assert space._counters.buffers_in_files == {"request": 0, "response": 1}


@pytest.mark.parametrize("how", ["full", "short", "no folder", "bound"])
def test_a_disk_without_room_is_counted_and_named_once_a_minute(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space, said = make_space(files=10 if how == "bound" else 1 << 20)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    if how == "full":
        monkeypatch.setattr(os, "pwrite", fail)
    elif how == "short":
        monkeypatch.setattr(os, "pwrite", lambda *_: 1)
    elif how == "no folder":
        monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    buffer = SpooledBuffer(space, memory=2, file=1 << 20)
    assert buffer.append(b"ab")
    assert [buffer.append(b"x" * 11), buffer.append(b"y")] == [False, False]
    assert not buffer.has_room
    monkeypatch.undo()
    assert buffer.take() + buffer.take() == b"ab" + b"x" * 11 + b"y"
    space.files = 0
    buffer.append(b"x" * 11)
    assert space._counters.buffers_full["response"] == 2
    [line] = said
    assert "no room to buffer a response" in line


def test_without_a_folder_for_files_requests_are_not_buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def gettempdir() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    for files, has_folder, buffered in ((1, True, True), (0, True, False), (1, False, False)):
        if not has_folder:
            monkeypatch.setattr(tempfile, "gettempdir", gettempdir)
        gate = Gate(bounds=Bounds(buffer_files=files), buffer_response=0)
        buffers = Buffers(GatewaySettings(gate), said.append)
        assert (buffers.for_request() is not None) is buffered
        assert buffers.for_response() is None
    assert len(said) == 1


async def test_a_buffer_is_sent_while_its_recipient_reads_with_turns_for_others() -> None:
    space, _ = make_space(memory=8 << 20)
    buffer = SpooledBuffer(space, memory=8 << 20, file=0)
    for _ in range(2 * PIECES_PER_TURN):
        buffer.append(b"x" * PIECE_SIZE)
    sent: list[bytes] = []
    buffer.send_to(sent.append, lambda: sent.append(b"end"), pytest.fail)
    buffer.resume()
    buffer.resume()
    assert not sent
    await turns(1)
    assert len(sent) == PIECES_PER_TURN
    buffer.paused = True
    await turns(3)
    assert (len(sent), len(buffer)) == (PIECES_PER_TURN, PIECES_PER_TURN * PIECE_SIZE)
    buffer.resume()
    await turns(3)
    assert (len(sent), sent[-1], space.memory) == (2 * PIECES_PER_TURN + 1, b"end", 8 << 20)


async def test_a_closed_buffer_sends_nothing_more() -> None:
    buffer = SpooledBuffer(make_space()[0], memory=10, file=0)
    buffer.append(b"hello")
    buffer.send_to(pytest.fail, pytest.fail, pytest.fail)
    buffer.resume()
    buffer.close()
    await turns(3)


async def test_a_file_that_cannot_be_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    space, _ = make_space()
    buffer = SpooledBuffer(space, memory=0, file=100)
    buffer.append(b"hello")
    errors: list[OSError] = []
    buffer.send_to(pytest.fail, pytest.fail, errors.append)
    monkeypatch.setattr(os, "pread", lambda *_: b"hel")
    buffer.resume()
    await turns(3)
    assert len(errors) == 1
    assert space.files == 1 << 20
