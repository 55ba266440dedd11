"""`headgate token` and tokens that are made and checked as docs/reference/token.md describes them, without our code."""

import base64
import hmac
import json
import os
import time
from hashlib import sha256

import pytest

from tests.e2e import programs


def run_token(*arguments, stdin="", group="token"):
    """Run `headgate token`, or another group, and return its output."""
    ran = programs.command(group, *arguments, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran.out


@pytest.fixture
def key(tmp_path):
    file = tmp_path / "key.json"
    run_token("new-token", "-o", file, group="keys")
    return file


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
