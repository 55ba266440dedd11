import re
from functools import partial

import pytest

from headgate.errors import ConfigurationError
from headgate.http.base64url import encode_base64url
from headgate.token import Checker, Key, ValidToken, mint, new_key, signed_token
from headgate.token.signed_token import (
    MAX_TOKEN_LENGTH,
    TokenHeader,
    bearer_token,
    decode_token,
    encode_token,
    has_bound_form,
    signed_message,
    target_origin,
)

NOW = 1_700_000_000.0
A = "https://a.example"
B = "https://b.example"
HEADER = TokenHeader(False, b"key 1234", 1_700_000_000.125, bytes(range(16)))
RAW = HEADER.encode()
TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*")

TARGET_ORIGINS = {
    "https://example.com": "https://example.com",
    "HTTPS://Example.COM:443/a?b#c": "https://example.com",
    "https://user:password@example.com:8443/": "https://example.com:8443",
    "https://0x7f.1": "https://127.0.0.1",
    "https://bücher.example": "https://xn--bcher-kva.example",
    "https://example.com./a": "https://example.com",
    "https://example.com.:8443": "https://example.com:8443",
    "https://[::1]:8443": "https://[::1]:8443",
}

MALFORMED_TOKENS = [
    "",
    "A",
    "not a token",
    "a" * 129,
    encode_base64url(RAW),
    encode_base64url(RAW[:-1]),
    encode_base64url(RAW + b"s") + "=",
    encode_base64url(b"\0" + RAW[1:] + b"s"),
    encode_base64url(b"\2" + RAW[1:] + b"s"),
    encode_base64url(b"\1\2" + RAW[2:] + b"s"),
    encode_base64url(b"\1\xff" + RAW[2:] + b"s"),
    "\ud800",
    "é" * 86,
]

BEARER_FIELDS = [
    (None, None),
    ("Bearer abc", "abc"),
    ("bearer   abc", "abc"),
    ("BEARER abc", "abc"),
    ("Bearer", ""),
    ("Bearer a b", "a b"),
    ("Basic abc", None),
    ("Bearerabc", None),
    ("", None),
]


@pytest.fixture
def check(key):
    checker = Checker([key])
    return lambda token, *, now=NOW, origin=A: checker.check(token, now=now, origin=origin)


@pytest.fixture
def new_token(key, entropy):
    return partial(mint, key, now=NOW, ttl=60, entropy=entropy)


def sign(key, expires):
    raw = TokenHeader(False, key.key_id, expires, bytes(16)).encode()
    return encode_token(raw, key.sign(signed_message(raw, "")))


def test_header_bytes():
    assert b"\1\0key 1234" + (1_700_000_000_125).to_bytes(6, "big") + bytes(range(16)) == RAW
    assert HEADER._replace(is_bound=True).encode()[:2] == b"\1\1"
    # A fraction of a millisecond is rounded up.
    assert HEADER._replace(expires=1_700_000_000.1251).encode()[10:16] == (1_700_000_000_126).to_bytes(6, "big")


def test_token_is_a_token68_and_round_trips():
    token = encode_token(RAW, b"\xff" * 32)
    assert len(token) == 86 <= MAX_TOKEN_LENGTH
    assert TOKEN68.fullmatch(token)
    assert decode_token(token) == (HEADER, RAW, b"\xff" * 32)


def test_signed_message_contains_the_origin_of_a_bound_token():
    bound = HEADER._replace(is_bound=True).encode()
    assert signed_message(RAW, A) == b"headgate token 1\0" + RAW
    assert signed_message(bound, A) == b"headgate token 1\0" + bound + b"https://a.example"
    assert signed_message(bound, "\ud800") == b"headgate token 1\0" + bound + b"?"


def test_malformed_token_is_not_decoded(check, new_token):
    for token in MALFORMED_TOKENS:
        assert decode_token(token) is None, token
    valid = new_token()
    for wrong in (*MALFORMED_TOKENS, valid + "=", f" {valid}", valid[:-1], valid + "A", valid.swapcase()):
        assert check(wrong) == "token_invalid", wrong
    assert check(None) == "token_missing"


def test_too_long_token_is_not_decoded(monkeypatch):
    monkeypatch.setattr(signed_token, "decode_base64url", lambda text: pytest.fail(f"decoded {len(text)} characters"))
    assert decode_token("A" * (MAX_TOKEN_LENGTH + 1)) is None


def test_header_of_a_minted_token(key, new_token):
    header, _, signature = decode_token(new_token())
    assert header == (False, key.key_id, NOW + 60, (2).to_bytes(16, "big"))
    assert len(signature) == 32
    assert [has_bound_form(token) for token in (new_token(), new_token(origin=A), "x")] == [False, True, False]


def test_ttl_is_bounded_by_the_key(new_token):
    assert new_token(ttl=86_400)
    for ttl in (0, -1, 86_400.5, float("inf"), float("nan")):
        with pytest.raises(ConfigurationError, match=f"at most 86400 seconds with this key, got {ttl:g}"):
            new_token(ttl=ttl)


def test_target_origin_is_the_origin_of_an_https_url(new_token):
    for url, origin in TARGET_ORIGINS.items():
        assert target_origin(url) == origin
    for url in ("", "example.com", "http://example.com", "wss://example.com", "data:,", "https://"):
        with pytest.raises(ConfigurationError, match=r"expected an https origin, such as https://example\.com"):
            new_token(origin=url)


def test_token_is_valid_until_it_expires(check, new_token):
    token = new_token()
    valid = check(token)
    assert isinstance(valid, ValidToken)
    assert (len(valid.identity), valid.expires, valid.is_bound) == (24, NOW + 60, False)
    assert check(token, now=NOW + 59.999) == check(token, origin=B) == valid
    assert check(token, now=NOW + 60) == check(token, now=NOW + 1e6) == "token_expired"


def test_bound_token_is_invalid_for_another_origin(check, new_token):
    token = new_token(origin="https://A.example:443/page")
    assert check(token).is_bound
    for other in (B, "https://a.example:8443", "http://a.example", "", "https://a.example.", "\ud800"):
        assert check(token, origin=other) == "token_invalid"
    # The signature is verified first, and is valid for its own origin only.
    assert check(token, now=NOW + 60) == "token_expired"
    assert check(token, now=NOW + 60, origin=B) == "token_invalid"


def test_lifetime_above_the_key_s_maximum_is_invalid(key, check):
    assert isinstance(check(sign(key, NOW + 86_400)), ValidToken)
    # The site's clock may be a minute ahead of the proxy's.
    assert isinstance(check(sign(key, NOW + 86_460)), ValidToken)
    assert check(sign(key, NOW + 86_460.001)) == "token_invalid"


def test_checker_accepts_tokens_of_all_its_keys(entropy):
    old, new = new_key(entropy=entropy), new_key(entropy=entropy)
    checker, tokens = Checker([new, old, old]), [mint(key, now=NOW, ttl=1, entropy=entropy) for key in (old, new)]
    for token in tokens:
        assert isinstance(checker.check(token, now=NOW, origin=A), ValidToken)
    assert Checker([new]).check(tokens[0], now=NOW, origin=A) == "token_invalid"


def test_checker_requires_keys_that_do_not_contradict():
    with pytest.raises(ConfigurationError, match="no key to check tokens with; create one with: headgate"):
        Checker([])
    with pytest.raises(ConfigurationError, match="listed twice, with max_ttl 86400 and 60"):
        Checker([Key(bytes(32)), Key(bytes(32), max_ttl=60)])


def test_bearer_token():
    for value, token in BEARER_FIELDS:
        assert bearer_token(value) == token, value
