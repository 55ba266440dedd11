"""`headgate token` as its own process, and the proxy's half: workers that share a memory, proxies that share Redis.

A token is also made and checked here by what docs/reference/token.md says of it, with nothing of headgate's.
"""

import asyncio
import base64
import hmac
import json
import os
import signal
import subprocess
import sys
import time
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from headgate.proxy.admission.replay_store import SharedReplayStore, create_replay_table
from headgate.token import Valid
from tests.e2e import programs

# A proxy's worker as far as tokens go: it checks each line of its input and says what came of it.
WORKER = """\
import asyncio, sys, time
from headgate.proxy.admission.replay_store import TokenCheck
from headgate.proxy.admission.redis_replay_store import RedisReplayStore
from headgate.proxy.admission.replay_store import SharedReplayStore
from headgate.token import Valid, read_keys

async def work(keys, where):
    once = RedisReplayStore(where, timeout=10) if "://" in where else SharedReplayStore(int(where))
    tokens = TokenCheck(read_keys(open(keys, "rb").read()), once)
    print("ready", flush=True)
    for line in sys.stdin.read().splitlines():
        found = await tokens.check(line, now=time.time(), origin="https://a.example")
        print("valid" if isinstance(found, Valid) else found)
    await tokens.close()

asyncio.run(work(*sys.argv[1:]))
"""


def told(*arguments, stdin=""):
    """Run `headgate token` to its end; give what it printed."""
    command = [sys.executable, "-m", "headgate", "token", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=programs.PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(keys, where, tokens, *, workers, pass_fds=()):
    """Have so many processes check all the tokens, at the same time, each in another order; give all they say."""
    command = [sys.executable, "-c", WORKER, str(keys), str(where)]
    running = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True, pass_fds=pass_fds) for _ in range(workers)]
    try:
        for worker in running:
            assert worker.stdout.readline() == "ready\n"
        shown = [tokens[number:] + tokens[:number] for number in range(workers)]
        for worker, lines in zip(running, shown, strict=True):
            worker.stdin.write("\n".join(lines))
        for worker in running:
            worker.stdin.close()
        said = [worker.stdout.read().split() for worker in running]
        assert [worker.wait(programs.PATIENCE) for worker in running] == [0] * workers
    finally:
        for worker in running:
            worker.kill()
            worker.stdout.close()
            worker.wait()
    return [dict(zip(lines, words, strict=True)) for lines, words in zip(shown, said, strict=True)]


@pytest.fixture(params=["hmac-sha256", "ed25519"])
def files(request, tmp_path):
    """The site's key file and the proxy's; with a shared secret they are one."""
    site, proxy = tmp_path / "site.json", tmp_path / "proxy.json"
    if request.param == "hmac-sha256":
        told("new-key", "-o", site)
        return site, site
    told("new-key", "--algorithm", "ed25519", "-o", site, "--public", proxy)
    return site, proxy


@pytest.fixture
def table():
    made = create_replay_table(1_000)
    yield made
    os.close(made)


def let_in_once(tokens, told):
    for token in tokens:
        assert sorted(worker[token] for worker in told) == ["token_replayed"] * (len(told) - 1) + ["valid"]


def test_a_token_opens_one_tunnel_among_all_workers(files, table):
    site, proxy = files
    tokens = told("mint", "--key", site, "--count", 300, "--ttl", 600, "--origin", "https://a.example").split()
    let_in_once(tokens, answers(proxy, table, tokens, workers=3, pass_fds=[table]))
    # Workers come and go; what was shown stays.
    (again,) = answers(proxy, table, tokens, workers=1, pass_fds=[table])
    assert set(again.values()) == {"token_replayed"}


@pytest.mark.needs("redis-server")
def test_a_token_opens_one_tunnel_among_all_proxies(files, redis_server):
    site, proxy = files
    tokens = told("mint", "--key", site, "--count", 100).split()
    let_in_once(tokens, answers(proxy, f"redis://127.0.0.1:{redis_server.port}", tokens, workers=3))


def test_a_worker_that_is_killed_takes_no_lock_with_it(table):
    script = "import fcntl, sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    token = Valid(bytes(range(24)), time.time() + 60, is_bound=False)
    once = SharedReplayStore(os.dup(table))
    with subprocess.Popen([sys.executable, "-c", script, str(table)], pass_fds=[table], stdin=-1, stdout=-1) as holder:
        try:
            holder.stdout.readline()
            holder.send_signal(signal.SIGSTOP)
            assert asyncio.run(once.consume(token, now=time.time())) == "tokens"
        finally:
            holder.kill()
    assert asyncio.run(once.consume(token, now=time.time())) is None
    asyncio.run(once.close())


def unpadded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.parametrize("origin", [None, "https://a.example"])
def test_what_is_minted_is_what_the_page_says(files, origin):
    site, proxy = files
    (jwk,) = json.loads(proxy.read_text())["keys"]
    token = told("mint", "--key", site, "--ttl", 60, *(["--origin", origin] if origin else [])).strip()
    raw = unpadded(token)
    head, signature = raw[:32], raw[32:]
    assert head[:2] == bytes([1, origin is not None])
    assert head[2:10] == unpadded(jwk["kid"])
    assert 50_000 < int.from_bytes(head[10:16], "big") - 1000 * time.time() < 60_001
    message = b"headgate token 1\0" + head + (origin or "").encode()
    if jwk["kty"] == "oct":
        assert hmac.new(unpadded(jwk["k"]), message, "sha256").digest() == signature
    else:
        Ed25519PublicKey.from_public_bytes(unpadded(jwk["x"])).verify(signature, message)


def test_a_token_made_by_the_page_is_taken(tmp_path):
    """Whoever writes another minter has to know no more than the page."""
    secret = os.urandom(32)
    key = {"kty": "oct", "k": base64.urlsafe_b64encode(secret).decode().rstrip("=")}
    (tmp_path / "key.json").write_text(json.dumps(key))
    thumbprint = sha256(f'{{"k":"{key["k"]}","kty":"oct"}}'.encode()).digest()
    expires = int(1000 * (time.time() + 60)).to_bytes(6, "big")
    head = b"\1\1" + thumbprint[:8] + expires + os.urandom(16)
    message = b"headgate token 1\0" + head + b"https://a.example"
    token = base64.urlsafe_b64encode(head + hmac.new(secret, message, "sha256").digest()).decode().rstrip("=")
    assert told("check", "--key", tmp_path / "key.json", "--origin", "https://a.example/page", token).startswith(
        "valid"
    )


def test_from_a_key_to_a_page_and_its_tokens(files, table):
    site, proxy = files
    pages = ["https://a.example/1", "https://a.example/2", "https://b.example/3"]
    rules = json.loads(told("rules", "--key", site, "--proxy", "https://prefetch.example.com", "--bind", *pages))
    first, second = (rule["proxy_authorization_tokens"] for rule in rules["prefetch"])
    (said,) = answers(proxy, table, first + second, workers=1, pass_fds=[table])
    assert said == {**dict.fromkeys(first, "valid"), **dict.fromkeys(second, "token_invalid")}
