import hmac
import json
from hashlib import sha256

import pytest

from headgate.errors import ConfigurationError
from headgate.token.keys import HmacKey, decode_base64url, encode_base64url

SECRET = bytes(range(32))


def test_base64url_round_trip():
    for content in (b"", b"a", b"ab", b"abc", bytes(range(256)), b"\xfb\xff"):
        text = encode_base64url(content)
        assert text.isascii()
        assert "=" not in text
        assert decode_base64url(text) == content


def test_only_canonical_base64url_is_decoded():
    malformed = ["Y", "+/+/", "YQ\n", " YQ", "Y Q", "YQ.", "äöü", "\ud800", "Y\0Q", "====", "Ｙ"]
    for text in [*malformed, "YQ==", "YR", "YWL"]:
        assert decode_base64url(text) is None, text


def test_signature_is_hmac_sha256():
    key = HmacKey(SECRET)
    signature = hmac.new(SECRET, b"message", "sha256").digest()
    assert key.sign(b"message") == signature
    assert key.verify(b"message", signature)
    assert not key.verify(b"massage", signature)
    assert not HmacKey(SECRET[::-1]).verify(b"message", signature)
    for length in (0, 31, 33, 64):
        assert not key.verify(b"message", (signature * 2)[:length])


def test_key_id_is_the_start_of_the_thumbprint():
    required = json.dumps({"k": encode_base64url(SECRET), "kty": "oct"}, separators=(",", ":"))
    assert HmacKey(SECRET).key_id == sha256(required.encode()).digest()[:8]


def test_short_secret_is_refused():
    with pytest.raises(ConfigurationError, match="must have at least 32 bytes, got 31"):
        HmacKey(SECRET[1:])
    assert HmacKey(SECRET * 2).can_mint


def test_jwk_of_the_secret():
    key = HmacKey(SECRET)
    assert key.to_jwk(public=False) == {"kty": "oct", "alg": "HS256", "k": encode_base64url(SECRET)}
    with pytest.raises(ConfigurationError, match=r"does not have a public key.*--algorithm ed25519"):
        key.to_jwk(public=True)


def test_repr_contains_no_secret():
    shown = repr(HmacKey(SECRET))
    assert encode_base64url(SECRET) not in shown
    assert repr(SECRET) not in shown
