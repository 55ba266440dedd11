"""Tokens are consumed once: over all workers, and over all proxies that share a Redis."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest
from redis.asyncio import Redis

from headgate.errors import ConfigurationError, MissingExtra
from headgate.proxy.admission import limits
from headgate.proxy.admission import replay_store as module
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.replay_store import RedisReplayStore, SharedReplayStore, TokenCheck, create_replay_table
from headgate.token import ValidToken, mint
from headgate.token.keys import HmacKey
from tests import servers
from tests.e2e.http2_client import async_test

NOW = 1_700_000_000.0
ORIGIN = "https://a.example"
KEY = HmacKey(bytes(32))


class StubStore:
    """Returns these answers, and records the tokens."""

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


def check(store, token, origin=ORIGIN):
    return asyncio.run(TokenCheck([KEY], store).check(token, now=NOW, origin=origin))


def test_a_valid_token_is_consumed():
    store = StubStore(None)
    valid = check(store, minted())
    assert isinstance(valid, ValidToken)
    assert store.asked == [(valid, NOW)]


@pytest.mark.parametrize("answer", ["token_replayed", "token_expired", "tokens"])
def test_the_store_decides_on_replays(answer):
    assert check(StubStore(answer), minted()) == answer


def test_invalid_tokens_are_not_stored():
    store = StubStore()
    assert check(store, None) == "token_missing"
    assert check(store, "x") == "token_invalid"
    assert check(store, minted(now=NOW - 60)) == "token_expired"
    assert check(store, minted(origin="https://b.example")) == "token_invalid"
    assert store.asked == []


def test_keys_are_required_and_the_store_is_closed():
    store = StubStore()
    asyncio.run(TokenCheck([KEY], store).close())
    assert store.closed
    with pytest.raises(ConfigurationError, match="no key"):
        TokenCheck([], store)


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
        TokenCheck([KEY], StubStore(None)).check(bound, now=NOW, origin=parse_authority(authority).origin)
    )
    assert isinstance(verdict, ValidToken)


LOCKING = """\
import fcntl, sys
fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_SH)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[True, False], ids=["in memory", "in a file"])
def descriptor(request, monkeypatch):
    """Return the descriptor of a table, of both kinds; each user duplicates it."""
    if not request.param:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    made = create_replay_table(100)
    yield made
    os.close(made)


def use(store, *tokens):
    async def consume_all():
        return [await store.consume(token, now=NOW) for token in tokens]

    return asyncio.run(consume_all())


@contextmanager
def locked_by_another(descriptor):
    """Hold a shared lock in another process, until that is killed."""
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
    store = SharedReplayStore(made)
    asyncio.run(store.close())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made)


def test_a_held_lock_refuses_and_does_not_block(descriptor, fresh, monkeypatch):
    monkeypatch.setattr(limits, "_MAX_TRIES", 5)
    store = SharedReplayStore(os.dup(descriptor))
    token = fresh(NOW + 60)
    with locked_by_another(descriptor):

        async def beside():
            turns = 0
            using = asyncio.ensure_future(store.consume(token, now=NOW))
            while not using.done():
                await asyncio.sleep(0)
                turns += 1
            return using.result(), turns

        reason, turns = asyncio.run(beside())
        assert reason == "tokens"
        assert turns > 5
    # The lock is released with its holder, and the token was not consumed.
    assert use(store, token) == [None]
    asyncio.run(store.close())


def test_a_lock_is_waited_for_briefly(descriptor, fresh, monkeypatch):
    store = SharedReplayStore(os.dup(descriptor))
    with locked_by_another(descriptor) as process:
        slept = asyncio.sleep

        async def sleep(seconds):
            process.kill()
            process.wait()
            await slept(seconds)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        assert use(store, fresh(NOW + 60)) == [None]
    asyncio.run(store.close())


def test_the_lock_is_released_after_each_use(descriptor, fresh):
    store = SharedReplayStore(os.dup(descriptor))
    use(store, fresh(NOW + 60))
    script = "import fcntl, sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-c", script, str(descriptor)], pass_fds=[descriptor], check=True)
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    asyncio.run(store.close())


PATIENCE = 20.0  # seconds; only ever reached by a failing test

needs_redis = pytest.mark.needs("redis-server")


@pytest.fixture
def url(redis_server):
    return f"redis://127.0.0.1:{redis_server.port}/0"


@asynccontextmanager
async def redis_store(url, **settings):
    store = RedisReplayStore(url, **settings)
    try:
        yield store
    finally:
        await store.close()


async def until(store, token, answer):
    """Consume a token until the answer is this one."""
    for _ in range(1_000):
        if await store.consume(token, now=NOW) == answer:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never {answer}")


@needs_redis
@async_test
async def test_a_token_is_new_once_over_all_proxies(url, fresh):
    token = fresh(NOW + 60)
    async with redis_store(url) as here, redis_store(url) as there:
        assert await here.consume(token, now=NOW) is None
        assert await there.consume(token, now=NOW) == "token_replayed"
        assert await here.consume(token, now=NOW + 59) == "token_replayed"
        assert await there.consume(fresh(NOW + 60), now=NOW) is None


@needs_redis
@async_test
async def test_one_of_many_concurrent_uses_succeeds(url, fresh):
    tokens = [fresh(NOW + 60) for _ in range(20)]
    async with redis_store(url, timeout=PATIENCE) as here, redis_store(url, timeout=PATIENCE) as there:
        asked = [store.consume(token, now=NOW) for token in tokens for store in (here, there) for _ in range(5)]
        answers = await asyncio.gather(*asked)
    assert answers.count(None) == 20
    assert answers.count("token_replayed") == 180


@needs_redis
@async_test
async def test_the_name_expires_after_the_token(url, fresh):
    token = fresh(NOW + 90)
    async with redis_store(url) as store, Redis.from_url(url) as client:
        assert await store.consume(token, now=NOW) is None
        (name,) = await client.keys()
        assert name == b"headgate:token:a2V5IDEyMzQBAAAAAAAAAAAAAAAAAAAA"
        assert await client.get(name) == b""
        # A minute more than it is good for by this clock: another proxy's may be behind.
        assert 140_000 < await client.pttl(name) <= 150_000


@needs_redis
@async_test
async def test_names_have_the_prefix(url, fresh):
    token = fresh(NOW + 60)
    async with redis_store(url, prefix="one:") as one, redis_store(url, prefix="other:") as other:
        assert await one.consume(token, now=NOW) is None
        assert await other.consume(token, now=NOW) is None


@async_test
async def test_an_unreachable_redis_refuses_and_is_not_asked_again_at_once(fresh, monkeypatch):
    asked = []
    monkeypatch.setattr(RedisReplayStore, "_consume", counted(RedisReplayStore._consume, asked))
    async with redis_store(f"redis://127.0.0.1:{servers.free_port()}") as store:
        assert await store.consume(fresh(NOW + 60), now=NOW) == "tokens"
        assert await store.consume(fresh(NOW + 60), now=NOW) == "tokens"
        assert len(asked) == 1
        store._retry_at = 0.0
        assert await store.consume(fresh(NOW + 60), now=NOW) == "tokens"
        assert len(asked) == 2


def counted(ask, calls):
    async def counting(*arguments):
        calls.append(arguments)
        return await ask(*arguments)

    return counting


@needs_redis
@async_test
async def test_a_redis_that_comes_back_is_asked_again(tmp_path, fresh, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_AFTER", 0.0)
    with servers.redis(tmp_path) as server:
        store = RedisReplayStore(f"redis://127.0.0.1:{server.port}")
        assert await store.consume(fresh(NOW + 60), now=NOW) is None
    assert await store.consume(fresh(NOW + 60), now=NOW) == "tokens"
    command = [
        servers.find_program("redis-server"),
        "--bind",
        "127.0.0.1",
        "--port",
        str(server.port),
        "--save",
        "",
    ]
    with servers.started([*command, "--dir", str(tmp_path)], server.port, tmp_path):
        await until(store, fresh(NOW + 60), None)
        await store.close()


@needs_redis
@async_test
async def test_a_closed_idle_connection_is_replaced(url, fresh):
    async with redis_store(url) as store, Redis.from_url(url) as client:
        # Two at store have a connection each.
        assert await asyncio.gather(*(store.consume(fresh(NOW + 60), now=NOW) for _ in range(2))) == [None, None]
        assert len(await client.client_list()) == 3
        await client.client_kill_filter(_type="normal", skipme=True)
        assert len(await client.client_list()) == 1
        assert await asyncio.gather(*(store.consume(fresh(NOW + 60), now=NOW) for _ in range(2))) == [None, None]


@needs_redis
@async_test
async def test_a_hanging_redis_times_out_and_late_replies_are_dropped(redis_server, url, fresh, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_AFTER", 0.0)
    used = fresh(NOW + 60)
    late = [fresh(NOW + 60) for _ in range(4)]
    async with redis_store(url, timeout=0.2) as store:
        assert await store.consume(used, now=NOW) is None
        os.kill(redis_server.process.pid, signal.SIGSTOP)
        try:
            assert await asyncio.gather(*(store.consume(token, now=NOW) for token in late)) == ["tokens"] * 4
        finally:
            os.kill(redis_server.process.pid, signal.SIGCONT)
        await until(store, used, "token_replayed")
        for _ in range(50):
            answers = await asyncio.gather(store.consume(fresh(NOW + 60), now=NOW), store.consume(used, now=NOW))
            assert answers == [None, "token_replayed"]


@needs_redis
@async_test
async def test_a_full_redis_refuses(url, fresh, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_AFTER", 0.0)
    async with redis_store(url) as store, Redis.from_url(url) as client:
        await client.config_set("maxmemory", 1)
        assert await store.consume(fresh(NOW + 60), now=NOW) == "tokens"
        await client.config_set("maxmemory", 0)
        assert await store.consume(fresh(NOW + 60), now=NOW) is None


@needs_redis
@async_test
async def test_a_cancelled_request_still_consumes_the_token(redis_server, url, fresh):
    first, gone = fresh(NOW + 60), fresh(NOW + 60)
    async with redis_store(url, timeout=PATIENCE) as store:
        assert await store.consume(first, now=NOW) is None
        os.kill(redis_server.process.pid, signal.SIGSTOP)
        try:
            going = asyncio.ensure_future(store.consume(gone, now=NOW))
            await asyncio.sleep(0.05)
            going.cancel()
            await asyncio.wait([going])
        finally:
            os.kill(redis_server.process.pid, signal.SIGCONT)
        assert going.cancelled()
        assert [await store.consume(token, now=NOW) for token in (gone, fresh(NOW + 60))] == [
            "token_replayed",
            None,
        ]
        async with Redis.from_url(url) as client:
            # This one, the first, and the second that was opened while the first still waited for its answer; and
            # the check whether the server listens.
            assert (await client.info("stats"))["total_connections_received"] <= 4
            assert len(await client.client_list()) == 3


@needs_redis
@async_test
async def test_close_waits_for_pending_requests(url, fresh):
    token = fresh(NOW + 60)
    store = RedisReplayStore(url)
    going = asyncio.ensure_future(store.consume(token, now=NOW))
    await asyncio.sleep(0)
    going.cancel()
    await store.close()
    assert store._pending == set()
    async with redis_store(url) as later:
        assert await later.consume(token, now=NOW) == "token_replayed"


class Relay:
    """A relay before Redis: `answer` maps each reply to what is sent back; None closes the connection."""

    def __init__(self, port, answer):
        self.port, self.answer = port, answer
        self.asked = b""
        self.serving = []

    async def serve(self, reader, writer):
        self.serving.append(asyncio.current_task())
        back, there = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            with suppress(ConnectionError):  # the client may reset its connection when its timeout is over
                while asked := await reader.read(65_536):
                    self.asked += asked
                    there.write(asked)
                    said = await self.answer(asked, await back.read(65_536))
                    if said is None:
                        break
                    writer.write(said)
        finally:
            for end in (there, writer):
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()


@asynccontextmanager
async def relay(port, answer):
    """Run a relay; yields it, and its URL."""
    running = Relay(port, answer)
    async with await asyncio.start_server(running.serve, "127.0.0.1", 0) as server:
        yield running, f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*running.serving)


@needs_redis
@async_test
async def test_a_lost_reply_is_not_retried(redis_server, fresh):
    async def cut(asked, said):
        return None if b"SET\r\n" in asked else said

    async with relay(redis_server.port, cut) as (running, url), redis_store(url) as store:
        # Redis has stored it: a retry would report the token as replayed.
        assert await store.consume(fresh(NOW + 60), now=NOW) == "tokens"
        assert running.asked.count(b"headgate:token:") == 1


@needs_redis
@async_test
async def test_the_timeout_includes_connecting(redis_server, fresh):
    async def slow(asked, said):
        await asyncio.sleep(0.15)
        return said

    # Selecting the database comes first, and each reply alone is in time.
    async with relay(redis_server.port, slow) as (_, url), redis_store(f"{url}/1", timeout=0.2) as store:
        assert await store.consume(fresh(NOW + 60), now=NOW) == "tokens"


def test_the_protocol_version_is_fixed():
    with pytest.raises(ConfigurationError, match="protocol 2 of Redis; leave protocol out"):
        RedisReplayStore("redis://127.0.0.1:6379/0?protocol=3")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:6379",
        "http://127.0.0.1:6379",
        "redis://127.0.0.1:port",
        "redis://127.0.0.1:6379/0?no_option=1",
        "rediss://127.0.0.1:6379/0?ssl_cert_reqs=sometimes",
    ],
)
def test_invalid_urls_are_errors(url):
    with pytest.raises(ConfigurationError, match="such as redis://") as caught:
        RedisReplayStore(url)
    assert caught.value.__suppress_context__  # the URL may contain a password


def test_a_missing_redis_package_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtra, match="extra 'redis'"):
        RedisReplayStore("redis://127.0.0.1:6379")
