import asyncio
import math
import socket

import msgspec

from headgate.runtime.ipc import Ask, Channel, Configure, End, Ready, Told


class State(msgspec.Struct, frozen=True):
    name: bytes
    until: float


def test_messages_arrive_as_they_were_sent_and_the_end_is_none():
    sent = [Ready(), Ask(True), End(1.5), Configure(State(b"\xff", 2.0)), Told(State(b"", -math.inf))]

    async def talk():
        ours, theirs = socket.socketpair()
        hears = Ready | Ask | End | Configure[State] | Told[State]
        near, far = await Channel.over(ours, hears), await Channel.over(theirs, hears)
        for message in sent:
            near.send(message)
        assert [await far.receive() for _ in sent] == sent
        near.send(Told(State(bytes(1 << 20), 0.0)))
        assert len((await far.receive()).state.name) == 1 << 20
        await near.close()
        assert await far.receive() is None
        near.send(Ready())  # to nobody
        await far.close()

    asyncio.run(talk())


def test_an_end_within_a_message_or_nonsense_is_the_end():
    async def talk(piece):
        ours, theirs = socket.socketpair()
        channel = await Channel.over(ours, Ready | Ask)
        theirs.sendall(piece)
        theirs.close()
        assert await channel.receive() is None
        await channel.close()

    for piece in (b"", b"\0\0", b"\0\0\0\5ab", b"\xff\xff\xff\xff" + bytes(100)):
        asyncio.run(talk(piece))
