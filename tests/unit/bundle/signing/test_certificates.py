import base64

import pytest

from headgate.bundle.format import cbor
from headgate.bundle.signing.certificates import read_augmented, read_certificate_chain, write_augmented, write_chain
from headgate.errors import ConfigurationError
from tests import signers

LEAF = signers.certificate()
ROOT = signers.root()
MAGIC = "📜⛓"


def item(ocsp: bytes | None = None, sct: bytes | None = None) -> dict[str, bytes]:
    entries = {"cert": signers.der(LEAF), "ocsp": ocsp, "sct": sct}
    return {name: value for name, value in entries.items() if value is not None}


def test_pem_gives_every_certificate_in_its_order() -> None:
    chain = read_certificate_chain(signers.certificate_pem(LEAF, ROOT))
    assert [one.certificate for one in chain] == [LEAF, ROOT]
    assert chain[0].item == cbor.encode({"cert": signers.der(LEAF)})


def test_pem_may_hold_the_key_too() -> None:
    content = signers.pem(signers.p256()) + signers.certificate_pem(LEAF)
    assert [one.certificate for one in read_certificate_chain(content)] == [LEAF]


def test_a_chain_of_cbor_is_read_and_written_again() -> None:
    content = cbor.encode([MAGIC, {**item(b"ocsp", b"sct"), "more": [1]}, {"cert": signers.der(ROOT)}])
    chain = read_certificate_chain(content)
    assert [one.certificate for one in chain] == [LEAF, ROOT]
    assert (chain[0].der, chain[0].ocsp, chain[0].sct) == (signers.der(LEAF), b"ocsp", b"sct")
    assert (chain[1].ocsp, chain[1].sct) == (None, None)
    assert write_chain(chain) == content


def test_an_augmented_certificate_is_written_as_it_is_read() -> None:
    written = write_augmented(signers.der(LEAF), ocsp=b"o", sct=b"s")
    assert written == cbor.encode(item(b"o", b"s"))
    assert read_augmented(cbor.Items(written)).item == written


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither PEM nor"),
        (b"garbage", "neither PEM nor"),
        (signers.der(LEAF), "neither PEM nor"),
        (cbor.encode([]), "neither PEM nor"),
        (cbor.encode(["other", item()]), f"does not begin with {MAGIC}"),
        (cbor.encode([MAGIC]), "no certificate"),
        (cbor.encode([MAGIC, {}]), "no cert"),
        (cbor.encode([MAGIC, {"cert": "text"}]), "text string"),
        (cbor.encode([MAGIC, {"cert": b"garbage"}]), "cannot be read"),
        (cbor.encode([MAGIC, {**item(), "ocsp": 1}]), "unsigned integer"),
        (cbor.encode([MAGIC, item(), item(b"ocsp")]), "certificate 1 has an OCSP response"),
        (cbor.encode([MAGIC, item()]) + b"\0", "more bytes"),
        (cbor.encode([MAGIC, item()])[:-1], "left"),
        (b"\x9f" + cbor.encode([MAGIC, item()])[1:] + b"\xff", "indefinite"),
        (signers.pem(signers.p256()), "are a private key without a certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "are PEM without a certificate"),
    ],
)
def test_invalid_chains_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refusal:
        read_certificate_chain(content)
    assert "\n" not in str(refusal.value)


def test_what_the_library_only_warns_of_is_refused() -> None:
    der = signers.der(LEAF)
    content = der.replace(b"\xa0\x03\x02\x01\x02\x02\x01\x01", b"\xa0\x03\x02\x01\x02\x02\x01\x00")
    assert content != der  # the serial number is 0, which RFC 5280 forbids
    lines = base64.encodebytes(content)
    pem = b"-----BEGIN CERTIFICATE-----\n" + lines + b"-----END CERTIFICATE-----\n"
    for written in (pem, cbor.encode([MAGIC, {"cert": content}])):
        with pytest.raises(ConfigurationError, match="serial number"):
            read_certificate_chain(written)
