"""Turns in an event loop: at once, when a message arrives, and when they are due."""

import asyncio

import pytest
import zmq

from headgate.link.sockets import LoopDriver
from headgate.release import NEVER

LATER = 60.0


class Driven:
    """A driver of one socket; its turns return `pauses`, then infinity."""

    def __init__(self, pair, *pauses):
        self.sender, self.socket = pair(zmq.PUSH, zmq.PULL)
        self.pauses, self.turns, self.received = list(pauses), 0, asyncio.Event()
        self.driver = LoopDriver(asyncio.get_running_loop(), self.turn, [self.socket])

    def turn(self):
        self.turns += 1
        while self.socket.poll(0):
            self.socket.recv()
            self.received.set()
        return self.pauses.pop(0) if self.pauses else NEVER


async def iterations():
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("pauses", "turns"), [([], 1), ([0.0, 0.0], 3), ([LATER], 1), ([0.0, LATER, 0.0], 2)])
async def test_next_turn_follows_at_once_if_messages_are_waiting(pair, pauses, turns):
    driven = Driven(pair, *pauses)
    await iterations()
    assert driven.turns == turns
    driven.driver.close()


async def test_turn_is_soon_once_instead_of_later(pair):
    driven = Driven(pair, LATER)
    driven.driver.wake_soon()
    driven.driver.wake_soon()
    assert driven.turns == 1
    await iterations()
    assert driven.turns == 2
    driven.driver.wake_soon()
    await iterations()
    assert driven.turns == 3
    driven.driver.close()


async def test_messages_cause_turns_until_the_driver_is_closed(pair):
    driven = Driven(pair)
    driven.sender.send(b"")
    async with asyncio.timeout(10.0):
        await driven.received.wait()
    driven.driver.close()
    await iterations()
    turns = driven.turns
    driven.sender.send(b"")
    await iterations()
    assert driven.turns == turns


async def test_close_cancels_the_next_turn(pair):
    driven = Driven(pair, 0.0)
    driven.driver.close()
    await iterations()
    assert driven.turns == 1
