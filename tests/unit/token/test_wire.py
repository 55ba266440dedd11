import re

import pytest

from headgate.token import base64url
from headgate.token.wire import LONGEST_TOKEN, Head, joined, signed, split

HEAD = Head(False, b"key 1234", 1_700_000_000.125, b"key 1234" + bytes(range(16)))
TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def test_the_bytes_of_a_head():
    assert HEAD.raw == b"\1\0key 1234" + (1_700_000_000_125).to_bytes(6, "big") + bytes(range(16))
    assert HEAD._replace(is_bound=True).raw[:2] == b"\1\1"
    # Never early: a fraction of a millisecond is rounded up.
    assert HEAD._replace(expires=1_700_000_000.1251).raw[10:16] == (1_700_000_000_126).to_bytes(6, "big")


@pytest.mark.parametrize(("length", "characters"), [(32, 86), (64, 128)])
def test_a_token_is_a_token68_and_comes_apart_again(length, characters):
    token = joined(HEAD.raw, b"\xff" * length)
    assert len(token) == characters <= LONGEST_TOKEN
    assert TOKEN68.fullmatch(token)
    assert split(token) == (HEAD, HEAD.raw, b"\xff" * length)


def test_the_origin_is_signed_where_there_is_one():
    bound = HEAD._replace(is_bound=True).raw
    assert signed(HEAD.raw, "https://example.com") == b"headgate token 1\0" + HEAD.raw
    assert signed(bound, "https://example.com") == b"headgate token 1\0" + bound + b"https://example.com"
    assert signed(bound, "\ud800") == b"headgate token 1\0" + bound + b"?"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "A",
        "not a token",
        "a" * 129,
        base64url.encode(HEAD.raw),
        base64url.encode(HEAD.raw[:-1]),
        base64url.encode(HEAD.raw + b"s") + "=",
        base64url.encode(b"\0" + HEAD.raw[1:] + b"s"),
        base64url.encode(b"\2" + HEAD.raw[1:] + b"s"),
        base64url.encode(b"\1\2" + HEAD.raw[2:] + b"s"),
        base64url.encode(b"\1\xff" + HEAD.raw[2:] + b"s"),
        "\ud800",
        "é" * 86,
    ],
)
def test_what_is_no_token(token):
    assert split(token) is None


def test_what_is_too_long_is_not_decoded(monkeypatch):
    monkeypatch.setattr(base64url, "decode", lambda text: pytest.fail(f"decoded {len(text)} characters"))
    assert split("A" * (LONGEST_TOKEN + 1)) is None
