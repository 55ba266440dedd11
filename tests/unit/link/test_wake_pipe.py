"""A pipe wakes a poller until it is cleared."""

import select

from headgate.link.wake_pipe import WakePipe


def is_readable(pipe):
    return bool(select.select([pipe.descriptor], [], [], 0)[0])


def test_it_is_readable_from_wake_to_clear():
    pipe = WakePipe()
    assert not is_readable(pipe)
    assert not pipe.clear()
    pipe.wake()
    pipe.wake()
    assert is_readable(pipe)
    assert pipe.clear()
    assert not is_readable(pipe)
    pipe.close()


def test_a_full_pipe_does_not_block():
    pipe = WakePipe()
    for _ in range(100_000):
        pipe.wake()
    assert is_readable(pipe)
    pipe.close()


def test_it_can_be_closed_twice():
    pipe = WakePipe()
    pipe.close()
    pipe.close()
    assert pipe.is_closed
