"""Tokens: only minted tokens are valid, and each is accepted once, in any order of events."""

import base64

from hypothesis import given
from hypothesis import strategies as st

from headgate.token import Checker, ReplayTable, ValidToken, mint, new_key
from headgate.token.replay_table import table_size

NOW = 1_700_000_000.0
KEYS = [new_key(entropy=lambda size, at=at: bytes([at]) * size) for at in (1, 2)]
CHECKER = Checker(KEYS)
ORIGINS = [None, "https://a.example", "https://b.example:8443", "https://xn--bcher-kva.example", "https://[::1]"]

keys = st.sampled_from(KEYS)
origins = st.sampled_from(ORIGINS)
ttls = st.floats(0, 86_400, exclude_min=True)
ids = st.binary(min_size=16, max_size=16)


@st.composite
def minted_tokens(draw):
    """Draw a token, its origin and its lifetime in seconds."""
    origin, ttl, token_id = draw(origins), draw(ttls), draw(ids)
    token = mint(draw(keys), now=NOW, ttl=ttl, entropy=lambda _: token_id, origin=origin)
    return token, origin, ttl


@given(minted_tokens(), st.data())
def test_token_with_one_bit_changed_is_invalid(one, data):
    token, origin, _ = one
    raw = bytearray(base64.urlsafe_b64decode(token + "=="))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    changed = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    assert CHECKER.check(changed, now=NOW, origin=origin or "") == "token_invalid"


USES = st.lists(st.tuples(st.integers(0, 200), st.floats(-30, 120)), max_size=400)
"""Token numbers in any order, each with the clock's offset; the clock may be set back."""


def token(number):
    """Return a token whose expiry depends on its number; all tokens fall into the same few buckets."""
    return ValidToken(b"key 1234" + number.to_bytes(16, "little"), NOW + 5 + number % 40, is_bound=False)


@given(USES, st.sampled_from([1, 40, 100]))
def test_token_is_accepted_once_and_new_ones_while_there_is_room(uses, max_tokens):
    table, accepted = ReplayTable(memoryview(bytearray(table_size(max_tokens)))), {}
    latest = -1e9
    for number, when in uses:
        now = NOW + when
        one = token(number)
        if one.expires <= now:
            continue  # Checker refuses it before the table is asked
        outcome = table.consume(one, now=now)
        if number in accepted:
            assert outcome is not None
            continue
        if outcome is None:
            accepted[number] = one.expires
        elif outcome == "tokens":
            assert sum(expires > now for expires in accepted.values()) >= 64
        else:
            # Whether a token that had expired before the clock was set back was used is unknown.
            assert outcome == "token_expired"
            assert one.expires <= NOW + latest
        latest = max(latest, when)
