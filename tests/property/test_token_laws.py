"""Tokens: nothing but what was minted checks, and nothing is let in twice, in whatever order things come."""

import asyncio
import base64
import json
import os
import re
import string

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.proxy.admission.replay_store import SharedReplayStore, TokenCheck, create_replay_table
from headgate.token import Checker, ReplayTable, Valid, mint, new_key, read_keys
from headgate.token.jwk import write_keys
from headgate.token.replay import table_size
from headgate.token.rules import script_text, speculation_rules

NOW = 1_700_000_000.0
KEYS = [new_key(algorithm, entropy=bytes) for algorithm in ("hmac-sha256", "ed25519")]
CHECKER = Checker(KEYS)
ORIGINS = [None, "https://a.example", "https://b.example:8443", "https://xn--bcher-kva.example", "https://[::1]"]
ALPHABET = string.ascii_letters + string.digits + "-_"

keys = st.sampled_from(KEYS)
origins = st.sampled_from(ORIGINS)
ttls = st.floats(0, 86_400, exclude_min=True)
ids = st.binary(min_size=16, max_size=16)


@st.composite
def minted(draw):
    """A token, its origin, and for how long it is good."""
    origin, ttl, token_id = draw(origins), draw(ttls), draw(ids)
    token = mint(draw(keys), now=NOW, ttl=ttl, entropy=lambda _: token_id, origin=origin)
    return token, origin, ttl


@given(minted(), st.floats(-60, 86_400 * 2), origins)
def test_what_was_minted_checks_for_its_time_and_its_origin(one, later, shown_for):
    token, origin, ttl = one
    assert re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token)
    found = CHECKER.check(token, now=NOW + later, origin=shown_for or "https://c.example")
    if origin is not None and origin != shown_for:
        assert found == "token_invalid"
    elif later < ttl - 1e-6:  # what a float next to 1.7e9 can tell apart
        assert isinstance(found, Valid)
        assert found.is_bound == (origin is not None)
        assert ttl - 1e-6 <= found.expires - NOW <= ttl + 0.002
    elif later > ttl + 0.002:
        assert found == "token_expired"


@given(minted(), st.data())
def test_no_token_with_a_bit_of_it_changed_checks(one, data):
    token, origin, _ = one
    raw = bytearray(base64.urlsafe_b64decode(token + "=="))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    changed = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    assert CHECKER.check(changed, now=NOW, origin=origin or "") == "token_invalid"


@given(minted(), st.data())
def test_no_token_with_its_text_changed_checks(one, data):
    token, origin, _ = one
    place = data.draw(st.integers(0, len(token)))
    text = data.draw(st.text(st.sampled_from(ALPHABET + "=+/. \n\0é"), max_size=3) | st.text(max_size=3))
    end = data.draw(st.integers(place, min(len(token), place + 3)))
    changed = token[:place] + text + token[end:]
    assume(changed != token)
    assert CHECKER.check(changed, now=NOW, origin=origin or "") == "token_invalid"


@given(minted(), minted(), st.integers(0, 128))
def test_no_token_made_of_two_checks(one, other, cut):
    made = one[0][:cut] + other[0][cut:]
    assume(made not in (one[0], other[0]))
    for _, origin, _ in (one, other):
        assert CHECKER.check(made, now=NOW, origin=origin or "") == "token_invalid"


@given(st.text() | st.text(ALPHABET, min_size=80, max_size=130), st.text())
def test_whatever_is_shown_gets_a_word(text, origin):
    assert CHECKER.check(text, now=NOW, origin=origin) == "token_invalid"


@given(st.binary(max_size=200) | st.binary(min_size=64, max_size=96))
def test_whatever_bytes_are_shown_get_a_word(content):
    for lead in (b"", b"\1\0" + KEYS[0].key_id, b"\1\1" + KEYS[1].key_id):
        shown = base64.urlsafe_b64encode(lead + content).decode().rstrip("=")
        assert CHECKER.check(shown, now=NOW, origin="https://a.example") == "token_invalid"


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=4), st.integers(1, 604_800))
def test_a_key_file_gives_its_keys_back(secrets, max_ttl):
    made = [
        new_key(("hmac-sha256", "ed25519")[number % 2], entropy=lambda _, secret=secret: secret, max_ttl=max_ttl)
        for number, secret in enumerate(secrets)
    ]
    again = read_keys(write_keys(made))
    assert [(key.key_id, key.max_ttl) for key in again] == [(key.key_id, key.max_ttl) for key in made]
    assert write_keys(again) == write_keys(made)


USES = st.lists(st.tuples(st.integers(0, 200), st.floats(-30, 120)), max_size=400)
"""Tokens by number, in any order, and by what clock: it is also put back."""


def token(number):
    """Give a token whose expiry is its number's; all of them are for the same few buckets."""
    return Valid(b"key 1234" + number.to_bytes(16, "little"), NOW + 5 + number % 40, is_bound=False)


@given(USES, st.sampled_from([1, 40, 100]))
def test_nothing_is_let_in_twice_and_what_is_new_is_while_there_is_room(uses, most):
    shown, let_in = ReplayTable(memoryview(bytearray(table_size(most)))), {}
    latest = -1e9
    for number, when in uses:
        now = NOW + when
        one = token(number)
        if one.expires <= now:
            continue  # the check before has found that out
        answer = shown.use(one, now=now)
        if number in let_in:
            assert answer is not None
            continue
        if answer is None:
            let_in[number] = one.expires
        elif answer == "tokens":
            assert sum(expires > now for expires in let_in.values()) >= 64
        else:
            # Nothing is known any more of what had expired before the clock was put back.
            assert answer == "token_expired"
            assert one.expires <= NOW + latest
        latest = max(latest, when)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=60))
def test_among_workers_a_token_is_let_in_once(shows):
    async def scenario():
        table = create_replay_table(100)
        workers = [TokenCheck(KEYS, SharedReplayStore(os.dup(table))) for _ in range(3)]
        tokens = [mint(KEYS[n % 2], now=NOW, ttl=60, entropy=os.urandom) for n in range(31)]
        checks = [workers[worker].check(tokens[number], now=NOW, origin="") for number, worker in shows]
        answers = await asyncio.gather(*checks)
        for worker in workers:
            await worker.close()
        os.close(table)
        return answers

    answers = asyncio.run(scenario())
    let_in = [answer for answer in answers if isinstance(answer, Valid)]
    assert len(let_in) == len({number for number, _ in shows})
    assert len({one.identity for one in let_in}) == len(let_in)
    assert answers.count("token_replayed") == len(answers) - len(let_in)


urls = st.lists(
    st.builds(
        "https://{}.example/{}".format, st.sampled_from("abc"), st.text(st.characters(exclude_categories=["Cs"]))
    ),
    min_size=1,
    max_size=8,
)


@given(urls, st.booleans())
def test_rules_have_a_token_for_each_candidate_and_end_no_element(pages, bind):
    rules = speculation_rules(
        pages, proxy="https://p.example", key=KEYS[0], now=NOW, ttl=60, entropy=os.urandom, bind=bind
    )
    text = script_text(rules)
    assert text.isascii()
    assert "<" not in text
    assert json.loads(text) == rules
    for rule in rules["prefetch"]:
        assert len(set(rule["proxy_authorization_tokens"])) == len(set(rule["urls"])) == len(rule["urls"])
        for url in rule["urls"]:
            for one in rule["proxy_authorization_tokens"]:
                assert isinstance(CHECKER.check(one, now=NOW, origin="/".join(url.split("/")[:3])), Valid)
