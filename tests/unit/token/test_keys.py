import hmac
import json
from hashlib import sha256

import pytest

from headgate.errors import ConfigurationError
from headgate.http.base64url import encode_base64url
from headgate.token import Key, new_key, read_keys
from headgate.token.keys import write_keys

SECRET = bytes(range(32))


def test_signature_is_hmac_sha256():
    key = Key(SECRET)
    signature = hmac.new(SECRET, b"message", "sha256").digest()
    assert key.sign(b"message") == signature
    assert key.verify(b"message", signature)
    assert not key.verify(b"massage", signature)
    assert not Key(SECRET[::-1]).verify(b"message", signature)
    for length in (0, 31, 33, 64):
        assert not key.verify(b"message", (signature * 2)[:length])


def test_key_id_is_the_start_of_the_thumbprint():
    required = json.dumps({"k": encode_base64url(SECRET), "kty": "oct"}, separators=(",", ":"))
    assert Key(SECRET).key_id == sha256(required.encode()).digest()[:8]


def test_short_secret_is_refused():
    with pytest.raises(ConfigurationError, match="must have at least 32 bytes, got 31"):
        Key(SECRET[1:])
    assert Key(SECRET).verify(b"", Key(SECRET).sign(b""))


def test_repr_contains_no_secret():
    shown = repr(Key(SECRET))
    assert encode_base64url(SECRET) not in shown
    assert repr(SECRET) not in shown


# RFC 7515, appendix A.1.
OCT = {"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}

FOREIGN_KEYS = [
    OCT,
    {**OCT, "alg": "HS256", "kid": "a", "use": "sig", "key_ops": ["sign"], "other": {}},
    {"keys": [OCT]},
]
"""Key files of other programs."""

INVALID_FILES = [
    (b"", "invalid key file"),
    (b"\xff\xfe", "invalid key file"),
    (b'{"keys": ["\xff"]}', "invalid key file"),
    (b"[" * 60_000, "invalid key file"),
    (b"-----BEGIN PRIVATE KEY-----", "invalid key file"),
    ([], "invalid key file"),
    ({}, "invalid key file"),
    ({"keys": {}}, "invalid key file"),
    ({"keys": [OCT, 1]}, "invalid key file"),
    ({**OCT, "k": 1}, "invalid key file"),
    ({**OCT, "max_ttl": 1.5}, "invalid key file"),
    ({"keys": []}, "does not contain a key"),
    (b" " * 65_537, "at most 65536 bytes"),
    ({**OCT, "k": "c2hvcnQ"}, "at least 32 bytes, got 5"),
    ({**OCT, "k": OCT["k"] + "="}, "malformed key member 'k'"),
    ({"kty": "oct"}, "missing or malformed key member 'k'"),
    ({**OCT, "alg": "HS512"}, "expected an HS256 key"),
    ({**OCT, "alg": "none"}, "expected an HS256 key"),
    ({"kty": "RSA", "n": "AQAB"}, "expected an HS256 key"),
    ({"kty": "OKP", "crv": "Ed25519", "d": OCT["k"]}, "expected an HS256 key"),
    ({**OCT, "max_ttl": 0}, "max_ttl must be from 1 to 604800 seconds, got 0"),
    ({**OCT, "max_ttl": 604_801}, "max_ttl must be from 1 to 604800 seconds, got 604801"),
]


def read(value):
    return read_keys(value if isinstance(value, bytes) else json.dumps(value).encode())


def test_a_key_file_has_the_documented_members_and_is_read_again(entropy):
    keys = [new_key(entropy=entropy, max_ttl=60), new_key(entropy=entropy)]
    written = write_keys(keys)
    first, second = json.loads(written)["keys"]
    secret, key_id = (encode_base64url(content) for content in ((1).to_bytes(32, "big"), keys[0].key_id))
    assert first == {"kty": "oct", "alg": "HS256", "k": secret, "kid": key_id, "use": "sig", "max_ttl": 60}
    assert second["max_ttl"] == 86_400
    assert written.endswith(b"}\n")
    again = read_keys(written)
    assert [(key.key_id, key.max_ttl) for key in again] == [(key.key_id, key.max_ttl) for key in keys]
    assert again[0].verify(b"message", keys[0].sign(b"message"))


def test_key_files_of_other_programs():
    for value in FOREIGN_KEYS:
        (key,) = read(value)
        assert key.key_id == read(OCT)[0].key_id, value


def test_invalid_key_file_is_refused_without_quoting_its_secrets():
    for value, expected in INVALID_FILES:
        with pytest.raises(ConfigurationError) as caught:
            read(value)
        assert expected in str(caught.value), value
        assert OCT["k"] not in str(caught.value)


def test_max_ttl_of_a_new_key_is_bounded(entropy):
    assert new_key(entropy=entropy, max_ttl=604_800).max_ttl == 604_800
    assert new_key(entropy=entropy, max_ttl=1).max_ttl == 1
    for seconds in (0, -1, 604_801):
        with pytest.raises(ConfigurationError, match=f"max_ttl must be from 1 to 604800 seconds, got {seconds}"):
            new_key(entropy=entropy, max_ttl=seconds)
