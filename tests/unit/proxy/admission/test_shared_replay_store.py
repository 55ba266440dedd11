import asyncio
import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from headgate.proxy.admission import shared_memory as memory
from headgate.proxy.admission.shared_replay_store import SharedReplayStore, create_replay_table

NOW = 1_700_000_000.0
LOCKING = """\
import fcntl, sys
fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_SH)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[True, False], ids=["in memory", "in a file"])
def descriptor(request, monkeypatch):
    """A table of each kind, open until the test is over; what uses it is given a descriptor of its own."""
    if not request.param:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    made = create_replay_table(100)
    yield made
    os.close(made)


def use(once, *tokens):
    async def all_of_them():
        return [await once.use(token, now=NOW) for token in tokens]

    return asyncio.run(all_of_them())


@contextmanager
def locked_by_another(descriptor):
    """Have another process hold a lock that only an exclusive one minds; it is let go when that is killed."""
    command = [sys.executable, "-c", LOCKING, str(descriptor)]
    with subprocess.Popen(command, pass_fds=[descriptor], stdin=-1, stdout=-1) as process:
        try:
            assert process.stdout.readline() == b"locked\n"
            yield process
        finally:
            process.kill()


def test_whoever_has_the_table_knows_what_was_shown(descriptor, fresh):
    one, other = fresh(NOW + 60), fresh(NOW + 60)
    here, there = (SharedReplayStore(os.dup(descriptor)) for _ in range(2))
    assert use(here, one) == [None]
    assert use(there, one, other) == ["token_replayed", None]
    assert use(here, other) == ["token_replayed"]
    asyncio.run(here.close())
    asyncio.run(there.close())
    later = SharedReplayStore(os.dup(descriptor))
    assert use(later, one) == ["token_replayed"]
    asyncio.run(later.close())


def test_the_descriptor_is_no_childs_business_and_is_closed():
    made = create_replay_table()
    assert not os.get_inheritable(made)
    once = SharedReplayStore(made)
    asyncio.run(once.close())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made)


def test_a_lock_that_is_not_let_go_refuses_and_blocks_nobody(descriptor, fresh, monkeypatch):
    monkeypatch.setattr(memory, "_TRIES", 5)
    once = SharedReplayStore(os.dup(descriptor))
    token = fresh(NOW + 60)
    with locked_by_another(descriptor):

        async def beside():
            turns = 0
            using = asyncio.ensure_future(once.use(token, now=NOW))
            while not using.done():
                await asyncio.sleep(0)
                turns += 1
            return using.result(), turns

        reason, turns = asyncio.run(beside())
        assert reason == "tokens"
        assert turns > 5
    # Killed, it holds nothing any more; and the token had not been used up.
    assert use(once, token) == [None]
    asyncio.run(once.close())


def test_a_lock_is_waited_for_a_little(descriptor, fresh, monkeypatch):
    once = SharedReplayStore(os.dup(descriptor))
    with locked_by_another(descriptor) as process:
        slept = asyncio.sleep

        async def sleep(seconds):
            process.kill()
            process.wait()
            await slept(seconds)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        assert use(once, fresh(NOW + 60)) == [None]
    asyncio.run(once.close())


def test_the_lock_is_let_go_after_each_use(descriptor, fresh):
    once = SharedReplayStore(os.dup(descriptor))
    use(once, fresh(NOW + 60))
    script = "import fcntl, sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-c", script, str(descriptor)], pass_fds=[descriptor], check=True)
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    asyncio.run(once.close())
