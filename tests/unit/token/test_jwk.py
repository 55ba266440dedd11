import json
import subprocess
import sys

import pytest

from headgate.errors import ConfigurationError, MissingExtra
from headgate.token import new_key, read_keys
from headgate.token.jwk import write_keys

# RFC 7515, appendix A.1, and RFC 8037, appendix A: keys that others made.
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


def read(value):
    return read_keys(value if isinstance(value, bytes) else json.dumps(value).encode())


def test_a_new_key_is_read_as_it_was_written(key):
    (again,) = read_keys(write_keys([key]))
    assert (again.key_id, again.algorithm, again.max_ttl) == (key.key_id, key.algorithm, 86_400)
    assert again.can_mint
    assert again.holds(b"message", key.sign(b"message"))


def test_a_key_file_is_a_set_of_json_web_keys(entropy):
    keys = [new_key("hmac-sha256", entropy=entropy, max_ttl=60), new_key("ed25519", entropy=entropy)]
    written = write_keys(keys)
    first, second = json.loads(written)["keys"]
    assert list(first) == ["kty", "alg", "k", "kid", "use", "max_ttl"]
    assert (first["kty"], first["alg"], first["use"], first["max_ttl"]) == ("oct", "HS256", "sig", 60)
    assert list(second) == ["kty", "crv", "alg", "x", "d", "kid", "use", "max_ttl"]
    assert written.endswith(b"}\n")
    assert [key.key_id for key in read_keys(written)] == [key.key_id for key in keys]


def test_the_public_half_holds_no_secret_and_is_the_file_without_d(entropy):
    key = new_key("ed25519", entropy=entropy)
    written = json.loads(write_keys([key], public=True))
    (whole,) = json.loads(write_keys([key]))["keys"]
    secret = whole.pop("d")
    assert written == {"keys": [whole]}
    assert secret not in json.dumps(written)
    (public,) = read(written)
    assert (public.can_mint, public.key_id) == (False, key.key_id)
    assert public.holds(b"message", key.sign(b"message"))


def test_the_secret_is_made_of_chance_and_32_bytes_of_it(entropy):
    asked = []

    def counted(length):
        asked.append(length)
        return entropy(length)

    ids = {new_key(algorithm, entropy=counted).key_id for algorithm in ("hmac-sha256", "ed25519") for _ in range(2)}
    assert asked == [32] * 4
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("value", "can_mint"),
    [
        (OCT, [True]),
        ({**OCT, "alg": "HS256", "kid": "a", "use": "sig", "key_ops": ["sign"], "other": {}}, [True]),
        (OKP, [True]),
        ({**OKP, "alg": "Ed25519"}, [True]),
        (PUBLIC, [False]),
        ({"keys": [PUBLIC, OCT]}, [False, True]),
    ],
)
def test_keys_of_others(value, can_mint):
    assert [key.can_mint for key in read(value)] == can_mint


@pytest.mark.parametrize(
    ("value", "said"),
    [
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
        ({"keys": []}, "has no key in it"),
        (b" " * 65_537, "at most 65536 bytes"),
        ({**OCT, "k": "c2hvcnQ"}, "has 5 bytes; it must have 32"),
        ({**OCT, "k": OCT["k"] + "="}, "no 'k' in base64url"),
        ({"kty": "oct"}, "no 'k' in base64url"),
        ({**OCT, "alg": "HS512"}, "only HS256 and Ed25519"),
        ({**OCT, "alg": "none"}, "only HS256 and Ed25519"),
        ({**OKP, "alg": "HS256"}, "only HS256 and Ed25519"),
        ({**OKP, "crv": "Ed448"}, "only HS256 and Ed25519"),
        ({"kty": "RSA", "n": "AQAB"}, "only HS256 and Ed25519"),
        ({**PUBLIC, "x": "YQ"}, "32 bytes in x"),
        ({**OKP, "d": "YQ"}, "32 in d"),
        ({**OKP, "x": OKP["d"]}, "do not belong to one another"),
        ({"kty": "OKP", "crv": "Ed25519", "d": OKP["d"]}, "no 'x' in base64url"),
        ({**OCT, "max_ttl": 0}, "max_ttl is 0"),
        ({**OCT, "max_ttl": 604_801}, "max_ttl is 604801; it is in seconds, from 1 to 604800"),
    ],
)
def test_what_is_no_key_file_is_one_sentence_without_its_secrets(value, said):
    with pytest.raises(ConfigurationError) as caught:
        read(value)
    assert said in str(caught.value)
    assert OCT["k"] not in str(caught.value)
    assert OKP["d"] not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, 604_801])
def test_a_new_key_has_bounds_too(entropy, seconds):
    with pytest.raises(ConfigurationError, match="max_ttl"):
        new_key("hmac-sha256", entropy=entropy, max_ttl=seconds)


def test_whoever_has_no_cryptography_has_hmac(monkeypatch, entropy):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert read_keys(write_keys([new_key("hmac-sha256", entropy=entropy)]))
    for use in (lambda: new_key("ed25519", entropy=entropy), lambda: read(OKP), lambda: read(PUBLIC)):
        with pytest.raises(MissingExtra, match="extra 'sign'"):
            use()


def test_importing_the_room_imports_no_cryptography():
    script = "import sys, headgate.token, headgate.token.rules; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
