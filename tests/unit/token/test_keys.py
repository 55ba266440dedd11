import hmac
import json
import subprocess
import sys
from hashlib import sha256

import pytest

from headgate.errors import ConfigurationError, MissingExtra
from headgate.token import new_key, read_keys
from headgate.token.keys import Ed25519Key, HmacKey, decode_base64url, encode_base64url, write_keys

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


# RFC 7515, appendix A.1, and RFC 8037, appendix A.
OCT = {
    "kty": "oct",
    "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
}
OKP = {
    "kty": "OKP",
    "crv": "Ed25519",
    "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
}
PUBLIC = {name: value for name, value in OKP.items() if name != "d"}

FOREIGN_KEYS = [
    (OCT, [True]),
    ({**OCT, "alg": "HS256", "kid": "a", "use": "sig", "key_ops": ["sign"], "other": {}}, [True]),
    (OKP, [True]),
    ({**OKP, "alg": "Ed25519"}, [True]),
    (PUBLIC, [False]),
    ({"keys": [PUBLIC, OCT]}, [False, True]),
]
"""Key files of other programs, and which of their keys can mint."""

INVALID_FILES = [
    (b"", "invalid key file"),
    (b"\xff\xfe", "invalid key file"),
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
    ({**OCT, "alg": "HS512"}, "expected an HS256 or an Ed25519 key"),
    ({**OCT, "alg": "none"}, "expected an HS256 or an Ed25519 key"),
    ({**OKP, "alg": "HS256"}, "expected an HS256 or an Ed25519 key"),
    ({**OKP, "crv": "Ed448"}, "expected an HS256 or an Ed25519 key"),
    ({"kty": "RSA", "n": "AQAB"}, "expected an HS256 or an Ed25519 key"),
    ({**PUBLIC, "x": "YQ"}, "expected 32 bytes in 'x'"),
    ({**OKP, "d": "YQ"}, "32 in 'd'"),
    ({**OKP, "x": OKP["d"]}, "'x' is not the public key of 'd'"),
    ({"kty": "OKP", "crv": "Ed25519", "d": OKP["d"]}, "malformed key member 'x'"),
    ({**OCT, "max_ttl": 0}, "max_ttl must be from 1 to 604800 seconds, got 0"),
    ({**OCT, "max_ttl": 604_801}, "max_ttl must be from 1 to 604800 seconds, got 604801"),
]


def read(value):
    return read_keys(value if isinstance(value, bytes) else json.dumps(value).encode())


def test_new_key_is_written_and_read(key):
    (again,) = read_keys(write_keys([key]))
    assert (again.key_id, again.algorithm, again.max_ttl) == (key.key_id, key.algorithm, 86_400)
    assert again.can_mint
    assert again.verify(b"message", key.sign(b"message"))


def test_members_of_a_key_file(entropy):
    keys = [new_key("hmac-sha256", entropy=entropy, max_ttl=60), new_key("ed25519", entropy=entropy)]
    written = write_keys(keys)
    first, second = json.loads(written)["keys"]
    assert list(first) == ["kty", "alg", "k", "kid", "use", "max_ttl"]
    assert (first["kty"], first["alg"], first["use"], first["max_ttl"]) == ("oct", "HS256", "sig", 60)
    assert list(second) == ["kty", "crv", "alg", "x", "d", "kid", "use", "max_ttl"]
    assert written.endswith(b"}\n")
    assert [key.key_id for key in read_keys(written)] == [key.key_id for key in keys]


def test_public_key_file_is_the_private_one_without_d(entropy):
    key = new_key("ed25519", entropy=entropy)
    written = json.loads(write_keys([key], public=True))
    (jwk,) = json.loads(write_keys([key]))["keys"]
    del jwk["d"]
    assert written == {"keys": [jwk]}
    (public,) = read(written)
    assert (public.can_mint, public.key_id) == (False, key.key_id)
    assert public.verify(b"message", key.sign(b"message"))


def test_new_key_takes_32_bytes_of_entropy(entropy):
    lengths = []

    def counted(length):
        lengths.append(length)
        return entropy(length)

    ids = {new_key(algorithm, entropy=counted).key_id for algorithm in ("hmac-sha256", "ed25519") for _ in range(2)}
    assert lengths == [32] * 4
    assert len(ids) == 4


def test_key_files_of_other_programs():
    for value, can_mint in FOREIGN_KEYS:
        assert [key.can_mint for key in read(value)] == can_mint, value


def test_invalid_key_file_is_refused_without_quoting_its_secrets():
    for value, expected in INVALID_FILES:
        with pytest.raises(ConfigurationError) as caught:
            read(value)
        assert expected in str(caught.value), value
        assert OCT["k"] not in str(caught.value)
        assert OKP["d"] not in str(caught.value)


def test_max_ttl_of_a_new_key_is_bounded(entropy):
    assert new_key("hmac-sha256", entropy=entropy, max_ttl=604_800).max_ttl == 604_800
    for seconds in (0, -1, 604_801):
        with pytest.raises(ConfigurationError, match=f"max_ttl must be from 1 to 604800 seconds, got {seconds}"):
            new_key("hmac-sha256", entropy=entropy, max_ttl=seconds)


def test_hmac_works_without_cryptography(monkeypatch, entropy):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert read_keys(write_keys([new_key("hmac-sha256", entropy=entropy)]))
    for call in (lambda: new_key("ed25519", entropy=entropy), lambda: read(OKP), lambda: read(PUBLIC)):
        with pytest.raises(MissingExtra, match="extra 'sign'"):
            call()


def test_importing_the_package_does_not_import_cryptography():
    script = "import sys, headgate.token, headgate.token.rules; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# RFC 8037, appendix A.
D = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
MESSAGE = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
SIGNATURE = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"


@pytest.fixture
def private():
    return Ed25519Key.from_private(decode_base64url(D))


@pytest.fixture
def public():
    return Ed25519Key.from_public(decode_base64url(X))


def test_example_of_rfc_8037(private, public):
    assert encode_base64url(private.sign(MESSAGE)) == SIGNATURE
    for key in (private, public):
        assert key.key_id == decode_base64url(THUMBPRINT)[:8]
        assert key.verify(MESSAGE, decode_base64url(SIGNATURE))
        assert not key.verify(MESSAGE + b"!", decode_base64url(SIGNATURE))
        assert key.to_jwk(public=True) == {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X}
    assert private.to_jwk(public=False) == {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X, "d": D}


def test_public_key_cannot_sign(private, public):
    assert (private.can_mint, public.can_mint) == (True, False)
    for call in (lambda: public.sign(b""), lambda: public.to_jwk(public=False)):
        with pytest.raises(ConfigurationError, match="this is a public key"):
            call()


def test_signature_of_another_length_is_refused(public):
    for length in (0, 32, 63, 65):
        assert not public.verify(b"", bytes(length))
