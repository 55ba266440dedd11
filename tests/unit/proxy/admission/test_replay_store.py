"""Tokens are consumed once, over all workers."""

import asyncio
import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.admission import shared_memory as memory
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.replay_store import SharedReplayStore, TokenCheck, create_replay_table
from headgate.token import Valid, mint
from headgate.token.key import HmacKey

NOW = 1_700_000_000.0
ORIGIN = "https://a.example"
KEY = HmacKey(bytes(32))


class Remembering:
    """Gives these answers, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.closed = False

    async def consume(self, valid, *, now):
        self.asked.append((valid, now))
        return self.answers.pop(0)

    async def close(self):
        self.closed = True


def minted(**changes):
    return mint(KEY, **({"now": NOW, "ttl": 60, "entropy": os.urandom} | changes))


def check(once, token, origin=ORIGIN):
    return asyncio.run(TokenCheck([KEY], once).check(token, now=NOW, origin=origin))


def test_a_valid_token_is_consumed():
    once = Remembering(None)
    valid = check(once, minted())
    assert isinstance(valid, Valid)
    assert once.asked == [(valid, NOW)]


@pytest.mark.parametrize("answer", ["token_replayed", "token_expired", "tokens"])
def test_the_store_decides_on_replays(answer):
    assert check(Remembering(answer), minted()) == answer


def test_invalid_tokens_are_not_stored():
    once = Remembering()
    assert check(once, None) == "token_missing"
    assert check(once, "x") == "token_invalid"
    assert check(once, minted(now=NOW - 60)) == "token_expired"
    assert check(once, minted(origin="https://b.example")) == "token_invalid"
    assert once.asked == []


def test_keys_are_required_and_the_store_is_closed():
    once = Remembering()
    asyncio.run(TokenCheck([KEY], once).close())
    assert once.closed
    with pytest.raises(ConfigurationError, match="no key"):
        TokenCheck([], once)


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://a.example/next", "A.EXAMPLE:443"),
        ("https://a.example./next", "a.example.:443"),
        ("https://a.example/next", "a.example.:443"),
        ("https://a.example.:8443", "a.example:8443"),
        ("https://127.1:8443", "127.0.0.1:8443"),
        ("https://[0::1]/", "[::1]:443"),
    ],
)
def test_a_bound_token_matches_the_origin_of_the_connect(url, authority):
    bound = mint(KEY, now=NOW, ttl=60, entropy=os.urandom, origin=url)
    verdict = asyncio.run(
        TokenCheck([KEY], Remembering(None)).check(bound, now=NOW, origin=parse_authority(authority).origin)
    )
    assert isinstance(verdict, Valid)


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
        return [await once.consume(token, now=NOW) for token in tokens]

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


def test_the_table_is_shared(descriptor, fresh):
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


def test_the_descriptor_is_not_inherited_and_is_closed():
    made = create_replay_table()
    assert not os.get_inheritable(made)
    once = SharedReplayStore(made)
    asyncio.run(once.close())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made)


def test_a_held_lock_refuses_and_does_not_block(descriptor, fresh, monkeypatch):
    monkeypatch.setattr(memory, "_MAX_TRIES", 5)
    once = SharedReplayStore(os.dup(descriptor))
    token = fresh(NOW + 60)
    with locked_by_another(descriptor):

        async def beside():
            turns = 0
            using = asyncio.ensure_future(once.consume(token, now=NOW))
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


def test_a_lock_is_waited_for_briefly(descriptor, fresh, monkeypatch):
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


def test_the_lock_is_released_after_each_use(descriptor, fresh):
    once = SharedReplayStore(os.dup(descriptor))
    use(once, fresh(NOW + 60))
    script = "import fcntl, sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-c", script, str(descriptor)], pass_fds=[descriptor], check=True)
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    asyncio.run(once.close())
