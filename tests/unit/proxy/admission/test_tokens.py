"""Tokens are consumed once, over all workers."""

import asyncio
import os

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.admission import limits
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.tokens import TokenCheck, create_replay_table
from headgate.token import Key, ValidToken, mint
from tests.unit.proxy.admission.locks import locked_by_another

NOW = 1_700_000_000.0
ORIGIN = "https://a.example"
KEY = Key(bytes(32))


def minted(**changes):
    return mint(KEY, **({"now": NOW, "ttl": 60, "entropy": os.urandom} | changes))


@pytest.fixture(params=[True, False], ids=["in memory", "in a file"])
def descriptor(request, monkeypatch):
    """Return the descriptor of a table, of both kinds; each user duplicates it."""
    if not request.param:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    made = create_replay_table(100)
    yield made
    os.close(made)


@pytest.fixture
def tokens(descriptor):
    made = TokenCheck([KEY], os.dup(descriptor))
    yield made
    made.close()


def check(tokens, token, origin=ORIGIN):
    outcome = asyncio.run(tokens.check(token, now=NOW, origin=origin))
    return "valid" if isinstance(outcome, ValidToken) else outcome


def test_a_token_is_valid_once_over_all_workers(descriptor, tokens):
    one, other = minted(), minted()
    there = TokenCheck([KEY], os.dup(descriptor))
    assert check(tokens, one) == "valid"
    assert [check(there, token) for token in (one, other)] == ["token_replayed", "valid"]
    assert check(tokens, other) == "token_replayed"
    there.close()
    later = TokenCheck([KEY], os.dup(descriptor))
    assert check(later, one) == "token_replayed"
    later.close()


def test_invalid_tokens_are_not_consumed(tokens):
    bound = minted(origin="https://b.example")
    assert check(tokens, None) == "token_missing"
    assert check(tokens, "x") == "token_invalid"
    assert check(tokens, minted(now=NOW - 60)) == "token_expired"
    assert check(tokens, bound) == "token_invalid"
    assert check(tokens, bound, "https://b.example") == "valid"


def test_keys_are_required_and_replaced(tokens):
    with pytest.raises(ConfigurationError, match="no key"):
        tokens.replace_keys([])
    assert check(tokens, minted()) == "valid"
    tokens.replace_keys([Key(bytes(32 * [1]))])
    assert check(tokens, minted()) == "token_invalid"


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
def test_a_bound_token_matches_the_origin_of_the_connect(tokens, url, authority):
    assert check(tokens, minted(origin=url), parse_authority(authority).origin) == "valid"


def test_the_descriptor_is_not_inherited_and_is_closed():
    made = create_replay_table()
    assert not os.get_inheritable(made)
    TokenCheck([KEY], made).close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made)


def test_a_held_lock_refuses_and_does_not_block(descriptor, tokens, monkeypatch):
    monkeypatch.setattr(limits, "_MAX_TRIES", 5)
    token = minted()

    async def beside():
        turns = 0
        checking = asyncio.ensure_future(tokens.check(token, now=NOW, origin=ORIGIN))
        while not checking.done():
            await asyncio.sleep(0)
            turns += 1
        return checking.result(), turns

    with locked_by_another(descriptor):
        reason, turns = asyncio.run(beside())
    assert reason == "tokens"
    assert turns > 5
    # The lock is released with its holder, and the token was not consumed.
    assert check(tokens, token) == "valid"
