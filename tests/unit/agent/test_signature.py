"""Which requests are signed, and what a courtesy with a key refuses."""

import copy
import os
import pickle
import sys

import msgspec
import pytest

from headgate.agent import Courtesy, RetryLater
from headgate.agent.signature import MAX_ORIGINS, AgentSigner
from headgate.errors import ConfigurationError, MissingExtra
from headgate.identity import accept_signature, new_signing_key, write_signing_key
from headgate.throttle import Policy, Throttle

AGENT = "https://bot.example"
NOW = 1_000.0
ASKS = [("accept-signature", accept_signature())]


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key.json"
    path.write_bytes(write_signing_key(new_signing_key(entropy=os.urandom)))
    path.chmod(0o600)
    return path


def courtesy(key, **options) -> Courtesy:
    throttle = Throttle(Policy(jitter_factor=0), hold_localhost=True)
    return Courtesy(key=key, agent_url=AGENT, throttle=throttle, clock=lambda: NOW, **options)


def sent(courtesy: Courtesy, url: str, status: int = 200, fields=(), method: str = "GET") -> tuple[bool, bool]:
    """Send a request; return whether it was signed, and whether it is sent again at once."""
    attempt = courtesy.attempt(method, url)
    assert attempt.wait() is None
    signed = "Signature" in attempt.own_fields(None)
    if attempt.received(status, fields):
        return signed, False
    try:
        return signed, attempt.wait() is None
    except RetryLater:
        return signed, False


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"agent_url": None}, "key needs an agent_url: where the public keys are, such as 'https://bot.example'"),
        ({"key": None}, "agent_url and sign need a key: a file made by: headgate keys new --agent"),
        ({"agent_url": "http://bot.example"}, "agent_url: invalid agent URL 'http://bot.example'"),
        ({"sign": "never"}, 'sign must be "always" or "when-asked", got \'never\''),
        ({"key": "no/such.json"}, "no/such.json"),
        ({"key": b"key"}, "key: expected the path of a file made by: headgate keys new --agent"),
        (
            {"key": '{"kty": "OKP", "d": "secret"}'},
            "key: expected the path of a file made by: headgate keys new --agent",
        ),
        ({"key": __file__}, "key: invalid key file; expected a private Ed25519 JSON Web Key, as written by: headgate"),
    ],
)
def test_arguments_that_do_not_sign_say_what_to_do(key, options, text):
    with pytest.raises(ConfigurationError) as caught:
        Courtesy(**{"key": key, "agent_url": AGENT, **options})
    assert text in str(caught.value)


@pytest.mark.parametrize(("mode", "warnings"), [(0o640, 0), (0o604, 1)])
def test_a_key_that_every_user_can_read_is_a_warning(key, mode, warnings, caplog):
    key.chmod(mode)
    courtesy(key)
    said = f"{key}: every user of this machine can read this secret key; use: chmod 600 {key}"
    assert [record.message for record in caplog.records] == [said] * warnings


def test_without_the_extra_it_says_what_to_install(key, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("headgate.identity", "headgate.agent.signature"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(MissingExtra, match=r"pip install '.\[sign\]'"):
        courtesy(key)


def test_copies_sign_too_and_show_no_key(key):
    given = Courtesy(key=str(key), agent_url=AGENT)
    pickled = pickle.dumps(given)
    for each in (copy.copy(given), pickle.loads(pickled)):
        assert sent(each, "https://example.com/") == (True, False)
    secret = key.read_text().partition('"d": "')[2].partition('"')[0]
    assert len(secret) == 43
    assert secret not in repr(given) + repr(vars(given._state.signer)) + pickled.decode("latin-1")


def test_requests_over_https_are_signed_with_a_key_that_is_valid_or_the_last(tmp_path):
    keys = [new_signing_key(entropy=os.urandom).to_jwk() for _ in range(2)]
    keys[0]["exp"], keys[1]["nbf"], keys[1]["exp"] = NOW, NOW, NOW + 1
    file = tmp_path / "keys.json"
    file.write_bytes(msgspec.json.encode({"keys": keys}))
    signer = AgentSigner(file, AGENT, "always")
    for now, key in ((NOW - 1, keys[0]), (NOW, keys[1]), (NOW + 1, keys[1])):
        assert key["kid"] in signer.fields("HTTPS://EXAMPLE.com:443/", now=now)["Signature-Input"]
    assert signer.fields("http://example.com/", now=NOW) == {}


@pytest.mark.parametrize(
    ("status", "fields", "method", "repeats", "signs"),
    [
        (401, ASKS, "GET", True, True),
        (403, ASKS, "POST", False, True),
        (429, ASKS, "GET", True, True),
        (429, [*ASKS, ("retry-after", "60")], "GET", False, True),  # it does not wait for so long
        (503, ASKS, "GET", False, False),
        (403, [("accept-signature", 'a=("@method");tag="other"')], "GET", False, False),
        (403, [], "GET", False, False),
    ],
)
def test_when_asked_the_refused_request_is_repeated_if_that_is_safe(key, status, fields, method, repeats, signs):
    given = courtesy(key, sign="when-asked")
    assert sent(given, "https://example.com/a", status, fields, method) == (False, repeats)
    given.clear("https://example.com/a")
    assert sent(given, "https://example.com/b", status, fields) == (signs, False)  # once
    assert sent(given, "https://example.com:8443/b") == (False, False)


def test_a_refused_request_is_final_if_it_cannot_be_sent_again_or_only_later(key):
    for options, fields in (({"repeatable": False}, ASKS), ({}, [*ASKS, ("retry-after", "60")])):
        given = Courtesy(key=key, agent_url=AGENT, sign="when-asked")
        attempt = given.attempt("GET", "https://localhost/", **options)  # which is not held
        assert attempt.wait() is None
        attempt.own_fields(None)
        assert attempt.received(403, fields)


def test_the_origins_that_have_asked_are_bounded(key):
    signer = AgentSigner(key, AGENT, "when-asked")
    urls = [f"https://{number}.example/" for number in range(MAX_ORIGINS + 1)]
    assert all(signer.is_asked(url, 401, ASKS) for url in urls)
    assert [bool(signer.fields(url, now=NOW)) for url in (urls[0], urls[1], urls[-1])] == [False, True, True]
    assert not signer.is_asked("http://example.com/", 401, ASKS)
