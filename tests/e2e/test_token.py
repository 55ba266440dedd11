"""`headgate token`, and a proxy's check: workers with a shared table.

Tokens are also made and checked as docs/reference/token.md describes them, without headgate's code.
"""

import base64
import hmac
import json
import os
import subprocess
import sys
import time
from hashlib import sha256

import pytest

from headgate.proxy.admission.tokens import create_replay_table
from tests.e2e import programs

# A proxy's worker: it checks each line of its input as a token and prints the outcome.
WORKER = """\
import asyncio, sys, time
from headgate.proxy.admission.tokens import TokenCheck
from headgate.token import ValidToken, read_keys

async def work(keys, place):
    tokens = TokenCheck(read_keys(open(keys, "rb").read()), int(place))
    print("ready", flush=True)
    for line in sys.stdin.read().splitlines():
        outcome = await tokens.check(line, now=time.time(), origin="https://a.example")
        print("valid" if isinstance(outcome, ValidToken) else outcome)
    tokens.close()

asyncio.run(work(*sys.argv[1:]))
"""


def run_token(*arguments, stdin=""):
    """Run `headgate token` and return its output."""
    ran = programs.command("token", *arguments, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran.out


def check_in_workers(keys, store, tokens, *, workers, pass_fds=()):
    """Check all tokens in several processes at once, each in another order; return each process's outcomes by token."""
    command = [sys.executable, "-c", WORKER, str(keys), str(store)]
    running = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True, pass_fds=pass_fds) for _ in range(workers)]
    try:
        for worker in running:
            assert worker.stdout.readline() == "ready\n"
        orders = [tokens[number:] + tokens[:number] for number in range(workers)]
        for worker, lines in zip(running, orders, strict=True):
            worker.stdin.write("\n".join(lines))
        for worker in running:
            worker.stdin.close()
        outputs = [worker.stdout.read().split() for worker in running]
        assert [worker.wait(programs.PATIENCE) for worker in running] == [0] * workers
    finally:
        for worker in running:
            worker.kill()
            worker.stdout.close()
            worker.wait()
    return [dict(zip(lines, outcomes, strict=True)) for lines, outcomes in zip(orders, outputs, strict=True)]


@pytest.fixture
def key(tmp_path):
    file = tmp_path / "key.json"
    run_token("new-key", "-o", file)
    return file


@pytest.fixture
def table():
    descriptor = create_replay_table(1_000)
    yield descriptor
    os.close(descriptor)


def assert_accepted_once(tokens, workers):
    for token in tokens:
        assert sorted(outcomes[token] for outcomes in workers) == ["token_replayed"] * (len(workers) - 1) + ["valid"]


def test_token_is_accepted_once_among_workers(key, table):
    tokens = run_token("mint", "--key", key, "--count", 300, "--ttl", 600, "--origin", "https://a.example").split()
    assert_accepted_once(tokens, check_in_workers(key, table, tokens, workers=3, pass_fds=[table]))
    # Used tokens stay known to later workers.
    (again,) = check_in_workers(key, table, tokens, workers=1, pass_fds=[table])
    assert set(again.values()) == {"token_replayed"}


def decode_base64url(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.parametrize("origin", [None, "https://a.example"])
def test_minted_token_has_the_documented_format(key, origin):
    (jwk,) = json.loads(key.read_text())["keys"]
    token = run_token("mint", "--key", key, "--ttl", 60, *(["--origin", origin] if origin else [])).strip()
    raw = decode_base64url(token)
    head, signature = raw[:32], raw[32:]
    assert head[:2] == bytes([1, origin is not None])
    assert head[2:10] == decode_base64url(jwk["kid"])
    assert 50_000 < int.from_bytes(head[10:16], "big") - 1000 * time.time() < 60_001
    message = b"headgate token 1\0" + head + (origin or "").encode()
    assert hmac.new(decode_base64url(jwk["k"]), message, "sha256").digest() == signature


def test_token_of_the_documented_format_is_valid(tmp_path):
    secret = os.urandom(32)
    key = {"kty": "oct", "k": base64.urlsafe_b64encode(secret).decode().rstrip("=")}
    (tmp_path / "key.json").write_text(json.dumps(key))
    thumbprint = sha256(f'{{"k":"{key["k"]}","kty":"oct"}}'.encode()).digest()
    expires = int(1000 * (time.time() + 60)).to_bytes(6, "big")
    head = b"\1\1" + thumbprint[:8] + expires + os.urandom(16)
    message = b"headgate token 1\0" + head + b"https://a.example"
    token = base64.urlsafe_b64encode(head + hmac.new(secret, message, "sha256").digest()).decode().rstrip("=")
    assert run_token("check", "--key", tmp_path / "key.json", "--origin", "https://a.example/page", token).startswith(
        "valid"
    )
