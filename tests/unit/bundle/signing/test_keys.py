"""headgate.bundle.signing.keys."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import PrivateFormat

from headgate.bundle.format import cbor
from headgate.bundle.signing import keys
from headgate.bundle.signing.keys import certificate_host, names_of, read_certificate_chain
from headgate.errors import ConfigurationError
from tests import signers

PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
"""What `openssl ecparam -genkey` writes before the key."""


def test_older_encodings_of_p256_keys_are_read() -> None:
    older = signers.pem(signers.p256(), encoding=PrivateFormat.TraditionalOpenSSL)
    assert b"BEGIN EC PRIVATE KEY" in older
    for content in (older, PARAMETERS + older):
        assert keys.read_private_key(content).public_key() == signers.p256().public_key()


def test_encrypted_key_needs_its_passphrase() -> None:
    content = signers.pem(signers.ed(), passphrase=b"secret")
    assert keys.read_private_key(content, passphrase=lambda: b"secret").public_key() == signers.ed().public_key()
    with pytest.raises(ConfigurationError, match="cannot be decrypted with this passphrase"):
        keys.read_private_key(content, passphrase=lambda: b"other")
    with pytest.raises(ConfigurationError, match="is encrypted; write it out decrypted"):
        keys.read_private_key(content)


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
        (signers.pem(rsa.generate_private_key(65537, 1024)), "of the kind RSA; only Ed25519 and P-256"),
    ],
)
def test_other_kinds_of_keys_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refusal:
        keys.read_private_key(content)
    assert "\n" not in str(refusal.value)


def test_web_bundle_ids_equal_the_published_ones() -> None:
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


LEAF = signers.certificate()
ROOT = signers.root()
MAGIC = "📜⛓"


def item(ocsp: bytes | None = None, sct: bytes | None = None) -> dict[str, bytes]:
    entries = {"cert": signers.der(LEAF), "ocsp": ocsp, "sct": sct}
    return {name: value for name, value in entries.items() if value is not None}


def test_certificates_are_read_from_pem_in_order() -> None:
    chain = read_certificate_chain(signers.certificate_pem(LEAF, ROOT))
    assert [one.certificate for one in chain] == [LEAF, ROOT]
    assert chain[0].item == cbor.encode({"cert": signers.der(LEAF)})


def test_chains_are_read_from_cbor() -> None:
    content = cbor.encode([MAGIC, {**item(b"ocsp", b"sct"), "more": [1]}, {"cert": signers.der(ROOT)}])
    chain = read_certificate_chain(content)
    assert [one.certificate for one in chain] == [LEAF, ROOT]
    assert (chain[0].der, chain[0].ocsp) == (signers.der(LEAF), b"ocsp")
    assert chain[0].item == cbor.encode({**item(b"ocsp", b"sct"), "more": [1]})
    assert chain[1].ocsp is None


INVALID_CHAINS = [
    (b"", "neither PEM nor"),
    (b"garbage", "neither PEM nor"),
    (signers.der(LEAF), "neither PEM nor"),
    (cbor.encode([]), "neither PEM nor"),
    (cbor.encode(["other", item()]), f"does not begin with {MAGIC}"),
    (cbor.encode([MAGIC]), "no certificate"),
    (cbor.encode([MAGIC, {}]), "lacks cert"),
    (cbor.encode([MAGIC, {"cert": "text"}]), "text string"),
    (cbor.encode([MAGIC, {"cert": b"garbage"}]), "cannot be read"),
    (cbor.encode([MAGIC, {**item(), "ocsp": 1}]), "unsigned integer"),
    (cbor.encode([MAGIC, item(), item(b"ocsp")]), "certificate 1 has an OCSP response"),
    (cbor.encode([MAGIC, item()]) + b"\0", "more bytes"),
    (cbor.encode([MAGIC, item()])[:-1], "left"),
    (b"\x9f" + cbor.encode([MAGIC, item()])[1:] + b"\xff", "indefinite"),
    (signers.pem(signers.p256()), "has a private key and no certificate"),
    (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "has no certificate"),
]


def test_invalid_chains_are_refused() -> None:
    wrong = []
    for content, words in INVALID_CHAINS:
        try:
            wrong.append((content, words, read_certificate_chain(content)))
        except ConfigurationError as error:
            if words not in str(error) or "\n" in str(error):
                wrong.append((content, words, error))
    assert wrong == []


def test_certificates_with_a_warning_of_the_library_are_refused() -> None:
    der = signers.der(LEAF)
    content = der.replace(b"\xa0\x03\x02\x01\x02\x02\x01\x01", b"\xa0\x03\x02\x01\x02\x02\x01\x00")
    assert content != der  # the serial number is 0, which RFC 5280 forbids
    lines = base64.encodebytes(content)
    pem = b"-----BEGIN CERTIFICATE-----\n" + lines + b"-----END CERTIFICATE-----\n"
    for written in (pem, cbor.encode([MAGIC, {"cert": content}])):
        with pytest.raises(ConfigurationError, match="serial number"):
            read_certificate_chain(written)


@pytest.mark.parametrize(
    ("names", "host", "covered"),
    [
        (["example.com"], "example.com", True),
        (["EXAMPLE.com"], "example.com", True),
        (["example.com"], "www.example.com", False),
        (["example.com"], "ample.com", False),
        (["example.com"], "", False),
        (["*.example.com"], "www.example.com", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], "a.b.example.com", False),
        (["*.example.com"], ".example.com", True),
        (["*"], "example", False),
        (["a.example", "b.example"], "b.example", True),
        (["127.0.0.1"], "127.0.0.1", True),
        (["::1"], "::1", True),
        (["127.0.0.1"], "127.0.0.2", False),
    ],
)
def test_certificates_name_hosts(names: list[str], host: str, covered: bool) -> None:
    assert names_of(signers.certificate(names)).cover(host) is covered


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com/a?b", "example.com"),
        ("https://example.com:8443/", "example.com"),
        ("https://example.com./", "example.com"),
        ("https://[::1]/", "::1"),
        ("https://[0:0::1]/", "::1"),
        ("https://127.0.0.1/", "127.0.0.1"),
        ("urn:uuid:1", ""),
        ("", ""),
    ],
)
def test_host_of_a_url(url: str, host: str) -> None:
    assert certificate_host(url) == host
