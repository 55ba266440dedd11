import json
import subprocess
import sys

import pytest

from headgate.errors import ConfigurationError, MissingExtra
from headgate.token import new_key, read_keys
from headgate.token.keys import write_keys

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
