import hmac
import json
from hashlib import sha256

import pytest

from headgate.errors import ConfigurationError
from headgate.token import base64url
from headgate.token.key import HmacKey

SECRET = bytes(range(32))


def test_it_is_hmac_sha256():
    key = HmacKey(SECRET)
    signature = hmac.new(SECRET, b"message", "sha256").digest()
    assert key.sign(b"message") == signature
    assert key.holds(b"message", signature)
    assert not key.holds(b"massage", signature)
    for length in (0, 31, 33, 64):
        assert not key.holds(b"message", (signature * 2)[:length])
    assert not HmacKey(SECRET[::-1]).holds(b"message", signature)


def test_its_id_is_the_start_of_its_thumbprint():
    required = json.dumps({"k": base64url.encode(SECRET), "kty": "oct"}, separators=(",", ":"))
    assert HmacKey(SECRET).key_id == sha256(required.encode()).digest()[:8]


def test_a_short_secret_is_none():
    with pytest.raises(ConfigurationError, match="has 31 bytes; it must have 32 at least"):
        HmacKey(SECRET[1:])
    assert HmacKey(SECRET * 2).can_mint


def test_it_has_no_public_half_and_says_what_has():
    key = HmacKey(SECRET)
    assert key.jwk(public=False) == {"kty": "oct", "alg": "HS256", "k": base64url.encode(SECRET)}
    with pytest.raises(ConfigurationError, match=r"no public half.*--algorithm ed25519"):
        key.jwk(public=True)


def test_what_is_printed_of_it_is_no_secret():
    shown = repr(HmacKey(SECRET))
    assert base64url.encode(SECRET) not in shown
    assert repr(SECRET) not in shown
