import asyncio
import math
import socket

import msgspec

from headgate.runtime.ipc import Channel, Configure, Query, Ready, Reply, Shutdown


class State(msgspec.Struct, frozen=True):
    name: bytes
    until: float


async def test_messages_arrive_as_sent_and_none_at_the_end():
    sent = [
        Ready(),
        Query("state", argument=True),
        Shutdown(1.5),
        Configure(State(b"\xff", 2.0)),
        Configure(State(b"", -math.inf)),
        Reply("state", b"\xff"),
    ]
    ours, theirs = socket.socketpair()
    message_type = Ready | Query | Shutdown | Configure[State] | Reply
    one, other = await Channel.open(ours, message_type), await Channel.open(theirs, message_type)
    for message in sent:
        one.send(message)
    assert [await other.receive() for _ in sent] == sent
    one.send(Reply("state", bytes(1 << 20)))
    assert len((await other.receive()).content) == 1 << 20
    await one.close()
    assert await other.receive() is None
    one.send(Ready())  # dropped
    await other.close()


def test_incomplete_or_oversized_message_is_the_end():
    async def talk(piece):
        ours, theirs = socket.socketpair()
        channel = await Channel.open(ours, Ready | Query)
        theirs.sendall(piece)
        theirs.close()
        assert await channel.receive() is None
        await channel.close()

    for piece in (b"", b"\0\0", b"\0\0\0\5ab", b"\xff\xff\xff\xff" + bytes(100)):
        asyncio.run(talk(piece))
