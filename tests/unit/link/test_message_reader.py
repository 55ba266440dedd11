import pytest
import zmq

from headgate.link.message_reader import MessageReader


@pytest.fixture
def sockets(pair):
    return pair(zmq.PUSH, zmq.PULL)


def read_all(reader):
    """Return the messages that `reader` reads, the empty ones included."""
    messages = []
    try:
        while True:
            messages.append(reader.read())
    except zmq.Again:
        return messages


def test_messages_are_read_whole(sockets):
    sender, receiver = sockets
    for message in ([b"a"], [b"", b"b"], [b"x"] * 4):
        sender.send_multipart(message)
    reader = MessageReader(receiver, 4)
    assert read_all(reader) == [[b"a"], [b"", b"b"], [b"x"] * 4]
    assert reader.discarded == 0


def test_only_the_first_frames_of_a_long_message_are_kept(sockets):
    sender, receiver = sockets
    sender.send_multipart([b"%d" % number for number in range(10)])
    sender.send_multipart([b"next"])
    reader = MessageReader(receiver, 4)
    assert read_all(reader) == [[b"0", b"1", b"2", b"3"], [b"next"]]
    assert reader.discarded == 6


def test_a_call_discards_a_limited_number_of_frames(sockets):
    sender, receiver = sockets
    sender.send_multipart([b"x"] * 1_000)
    sender.send_multipart([b"next"])
    reader = MessageReader(receiver, 4)
    assert reader.read() == [b"x"] * 4
    assert reader.discarded == 256
    assert read_all(reader) == [[], [], [], [b"next"]]
    assert reader.discarded == 996
