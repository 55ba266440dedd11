import asyncio
import os

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.replay_store import TokenCheck
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

    async def use(self, valid, *, now):
        self.asked.append((valid, now))
        return self.answers.pop(0)

    async def close(self):
        self.closed = True


def minted(**changes):
    return mint(KEY, **({"now": NOW, "ttl": 60, "entropy": os.urandom} | changes))


def check(once, token, origin=ORIGIN):
    return asyncio.run(TokenCheck([KEY], once).check(token, now=NOW, origin=origin))


def test_a_valid_token_is_used_up_when_it_is_checked():
    once = Remembering(None)
    valid = check(once, minted())
    assert isinstance(valid, Valid)
    assert once.asked == [(valid, NOW)]


@pytest.mark.parametrize("answer", ["token_replayed", "token_expired", "tokens"])
def test_what_remembers_has_the_last_word(answer):
    assert check(Remembering(answer), minted()) == answer


def test_what_is_not_valid_is_not_remembered():
    once = Remembering()
    assert check(once, None) == "token_missing"
    assert check(once, "x") == "token_invalid"
    assert check(once, minted(now=NOW - 60)) == "token_expired"
    assert check(once, minted(origin="https://b.example")) == "token_invalid"
    assert once.asked == []


def test_it_has_keys_and_closes_what_remembers():
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
def test_a_bound_token_is_for_the_origin_as_a_connect_names_it(url, authority):
    bound = mint(KEY, now=NOW, ttl=60, entropy=os.urandom, origin=url)
    verdict = asyncio.run(
        TokenCheck([KEY], Remembering(None)).check(bound, now=NOW, origin=parse_authority(authority).origin)
    )
    assert isinstance(verdict, Valid)
