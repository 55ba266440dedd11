import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import PrivateFormat

from headgate.bundle.signing import keys
from headgate.errors import ConfigurationError
from tests import signers

PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
"""What `openssl ecparam -genkey` writes before the key."""


@pytest.mark.parametrize("key", [signers.ed(), signers.p256()], ids=["ed25519", "p256"])
def test_a_key_is_read_as_it_was_written(key: keys.PrivateKey) -> None:
    assert keys.read_private_key(signers.pem(key)).public_key() == key.public_key()


def test_older_forms_of_a_p256_key_are_read() -> None:
    older = signers.pem(signers.p256(), encoding=PrivateFormat.TraditionalOpenSSL)
    assert b"BEGIN EC PRIVATE KEY" in older
    for content in (older, PARAMETERS + older):
        assert keys.read_private_key(content).public_key() == signers.p256().public_key()


def test_a_key_is_found_beside_certificates() -> None:
    content = signers.certificate_pem(signers.certificate()) + signers.pem(signers.p256())
    assert keys.read_private_key(content).public_key() == signers.p256().public_key()


def test_an_encrypted_key_asks_for_its_passphrase() -> None:
    content = signers.pem(signers.ed(), passphrase=b"secret")
    assert keys.read_private_key(content, passphrase=lambda: b"secret").public_key() == signers.ed().public_key()
    with pytest.raises(ConfigurationError, match="cannot be decrypted with this passphrase"):
        keys.read_private_key(content, passphrase=lambda: b"other")
    with pytest.raises(ConfigurationError, match="is encrypted; write it out decrypted"):
        keys.read_private_key(content)


def test_older_encrypted_key_is_reported_too() -> None:
    content = signers.pem(signers.p256(), passphrase=b"secret", encoding=PrivateFormat.TraditionalOpenSSL)
    assert b"Proc-Type: 4,ENCRYPTED" in content
    with pytest.raises(ConfigurationError, match="is encrypted"):
        keys.read_private_key(content)


def test_a_passphrase_is_not_asked_for_in_vain() -> None:
    assert keys.read_private_key(signers.pem(signers.ed()), passphrase=lambda: pytest.fail("asked"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not PEM"),
        (b"\x30\x82", "is not PEM"),
        (signers.public_pem(signers.ed()), "is a public key"),
        (signers.certificate_pem(signers.certificate()), "is a certificate"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cannot be read"),
        (b"-----BEGIN PRIVATE KEY-----\n", "cannot be read"),
        (signers.pem(signers.p384()), "on the curve secp384r1; only Ed25519 and P-256"),
        (signers.pem(rsa.generate_private_key(65537, 2048)), "of the kind RSA; only Ed25519 and P-256"),
    ],
)
def test_other_kinds_of_keys_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refusal:
        keys.read_private_key(content)
    assert "\n" not in str(refusal.value)


def test_web_bundle_ids_are_the_published_ones() -> None:
    """The explainer of Isolated Web Apps has this id for this Ed25519 key; for P-256, wbn-sign's tests pin the form."""
    raw = bytes.fromhex(
        "01 23 43 43 33 42 7A 14 42 14 a2 b6 c2 d9 f2 02 03 42 18 10 12 26 62 88 f6 a3 a5 47 14 69 00 73"
    )
    key = keys.load_public_key("ed25519PublicKey", raw)
    assert keys.web_bundle_id(key) == "aerugqztij5biqquuk3mfwpsaibuegaqcitgfchwuosuofdjabzqaaic"
    assert keys.raw_public_key(key) == raw
    curve = keys.web_bundle_id(signers.p256().public_key())
    assert len(curve) == 58
    assert curve.endswith("aacai")


def test_a_signature_is_the_same_every_time() -> None:
    for key in (signers.ed(), signers.p256()):
        assert keys.sign(key, b"message") == keys.sign(key, b"message")


def test_a_signature_holds_for_its_message_alone() -> None:
    for key in (signers.ed(), signers.p256()):
        public_key, signature = key.public_key(), keys.sign(key, b"message")
        assert keys.verify_signature(public_key, signature, b"message")
        assert not keys.verify_signature(public_key, signature, b"massage")
        for wrong in (b"", b"garbage", signature + b"\0", signature[:-1]):
            assert not keys.verify_signature(public_key, wrong, b"message")


@pytest.mark.parametrize(
    ("attribute", "raw"),
    [("ecdsaP256SHA256PublicKey", b"\5" + bytes(32)), ("ecdsaP256SHA256PublicKey", b"\2" + b"\xff" * 32)],
)
def test_invalid_point_is_not_a_key(attribute: str, raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        keys.load_public_key(attribute, raw)
