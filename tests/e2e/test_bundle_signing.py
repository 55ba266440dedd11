"""Signatures by the commands, against the npm registry's `wbn-sign` and keys and certificates that openssl makes."""

import json
import subprocess
from pathlib import Path

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.signing.keys import read_private_key, web_bundle_id
from tests import servers, signers
from tests.e2e import programs
from tests.e2e.node_process import NodeProcess

VECTORS = Path(__file__).parents[1] / "vectors" / "bundle"
KEYS = {"ed": signers.ed(), "p256": signers.p256(), "other": signers.ed(2)}
BUNDLES = ["small_b1.wbn", "small_b2.wbn", "variants_b1.wbn", "hello_b2.wbn"]


@pytest.fixture(scope="module")
def wbn_sign():
    with NodeProcess("signing.mjs", "wbn-sign") as process:
        yield process


@pytest.fixture
def keys(tmp_path):
    """Return the paths of private keys, by name."""
    paths = {name: tmp_path / f"{name}.pem" for name in KEYS}
    for name, path in paths.items():
        path.write_bytes(signers.pem(KEYS[name]))
    return paths


def headgate(*words, code=0):
    """Run `headgate bundle` and return its stdout."""
    ran = programs.command("bundle", *words)
    assert ran.code == code, ran.err
    assert "Traceback" not in ran.err
    return ran.out if code in (0, 1) else ran.err


def verified(path, *flags, code=0):
    return json.loads(headgate("verify", path, *flags, "--json", "--profile", "compat", code=code))


def answers(found):
    """Return the findings without the notes about what was not checked."""
    return found["result"], found["web_bundle_id"], [(one["kind"], one["valid"]) for one in found["signatures"]]


def id_of(name):
    return web_bundle_id(KEYS[name].public_key())


@pytest.mark.needs("node-wbn-sign")
@pytest.mark.parametrize("bundle", BUNDLES)
@pytest.mark.parametrize("names", [["ed"], ["p256"], ["ed", "p256", "other"]])
def test_signatures_of_wbn_sign_are_valid(wbn_sign, keys, tmp_path, bundle, names):
    signed = tmp_path / "signed.swbn"
    signed.write_bytes(bytes.fromhex(wbn_sign("sign", bundle=VECTORS / bundle, keys=[keys[name] for name in names])))
    found = verified(signed)
    assert (found["valid"], found["web_bundle_id"]) == (True, id_of(names[0]))
    assert [signature["kind"] for signature in found["signatures"]] == ["integrity-block"] * len(names)


@pytest.mark.needs("node-wbn-sign")
@pytest.mark.parametrize("bundle", BUNDLES)
@pytest.mark.parametrize("names", [["ed"], ["p256"], ["other", "p256", "ed"]])
def test_wbn_sign_accepts_our_signatures(wbn_sign, keys, tmp_path, bundle, names):
    signed, source = tmp_path / "signed.swbn", VECTORS / bundle
    for name in names:
        headgate("sign", source, "--integrity-block", "--key", keys[name], "-o", signed, "--profile", "compat")
        source = signed
    assert wbn_sign("bundleId", signed=signed) == id_of(names[0]) == wbn_sign("id", key=keys[names[0]])
    with open_bundle(signed, profile="compat") as opened:
        block = opened.integrity_block
    signatures = [
        {
            "key": keys[name],
            "attribute": entry.byte_attributes[0][0],
            "attributes": entry.attributes.hex(),
            "signature": entry.signature.hex(),
        }
        for name, entry in zip(names, block.signatures, strict=True)
    ]
    theirs = wbn_sign("check", bundle=VECTORS / bundle, id=id_of(names[0]), signatures=signatures)
    assert signed.read_bytes() == bytes.fromhex(theirs) + (VECTORS / bundle).read_bytes()
    signatures[0]["signature"] = bytes(len(block.signatures[0].signature)).hex()
    with pytest.raises(ValueError, match="cannot be verified"):
        wbn_sign("check", bundle=VECTORS / bundle, id=id_of(names[0]), signatures=signatures)


@pytest.mark.needs("node-wbn-sign")
def test_signatures_of_wbn_sign_and_ours_combine(keys, tmp_path):
    theirs, both, left = tmp_path / "theirs.swbn", tmp_path / "both.swbn", tmp_path / "left.wbn"
    program = servers.NODE_MODULES / "wbn-sign" / "bin" / "wbn-sign.js"
    source = VECTORS / "small_b2.wbn"
    command = [servers.find_program("node"), program, "-i", source, "-k", keys["ed"], "-o", theirs]
    stderr = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout
    assert stderr.strip() == id_of("ed")
    headgate("sign", theirs, "--integrity-block", "--key", keys["p256"], "-o", both)
    shown = json.loads(headgate("info", both, "--json"))["integrity_block"]
    assert (shown["web_bundle_id"], shown["signatures"]) == (id_of("ed"), [id_of("ed"), id_of("p256")])
    assert len(verified(both)["signatures"]) == 2
    headgate("sign", both, "--remove", "--key", keys["p256"], "-o", both)
    assert both.read_bytes() == theirs.read_bytes()
    headgate("sign", both, "--remove", "-o", left)
    assert left.read_bytes() == source.read_bytes()
    assert answers(verified(left, code=1)) == ("not-signed", None, [])


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    "algorithm", [["-algorithm", "ed25519"], ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]]
)
def test_keys_made_by_openssl_sign(tmp_path, algorithm):
    key, signed = tmp_path / "key.pem", tmp_path / "signed.swbn"
    openssl("genpkey", *algorithm, "-out", key)
    headgate("sign", VECTORS / "small_b2.wbn", "--integrity-block", "--key", key, "-o", signed)
    expected = web_bundle_id(read_private_key(key.read_bytes()).public_key())
    assert answers(verified(signed)) == ("valid", expected, [("integrity-block", True)])
    assert verified(signed, "--web-bundle-id", expected)["valid"]


def openssl(*words):
    command = [servers.find_program("openssl"), *words]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


@pytest.fixture
def certified(tmp_path):
    """Return the paths of a key and its certificate, made by openssl."""
    key, certificate = tmp_path / "signer.pem", tmp_path / "certificate.pem"
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-out", key)
    name = ["-subj", "/CN=example.com", "-addext", "subjectAltName=DNS:example.com"]
    openssl("req", "-new", "-x509", "-key", key, "-days", "90", *name, "-out", certificate)
    return key, certificate


def vouching_flags(key, certificate):
    validity = ["--validity-url", "https://example.com/validity"]
    return ["--certificate", certificate, "--key", key, *validity, "--profile", "compat"]


@pytest.mark.needs("openssl")
def test_a_certificate_made_by_openssl_vouches(certified, tmp_path):
    key, certificate = certified
    source, signed = VECTORS / "small_b1.wbn", tmp_path / "signed.wbn"
    words = vouching_flags(key, certificate)
    headgate("sign", source, *words, "-o", signed)
    trust = ("--trust", certificate)
    assert answers(verified(signed, *trust)) == ("valid", None, [("vouched-subset", True)])
    assert verified(signed, code=1)["result"] == "untrusted"
    info = json.loads(headgate("info", signed, "--json", "--profile", "compat"))
    assert (info["authorities"], info["vouched_subsets"], info["requests"]) == (1, 1, 6)

    stale = tmp_path / "stale.wbn"
    headgate("sign", source, *words, "--date", "2026-01-01T00:00:00Z", "--expires", "+7d", "-o", stale)
    (signature,) = verified(stale, *trust, code=1)["signatures"]
    assert signature["reason"].startswith("expired: it expired at 2026-01-08T00:00:00Z")

    content = signed.read_bytes()
    broken = tmp_path / "broken.wbn"
    broken.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    (signature,) = verified(broken, *trust, code=1)["signatures"]
    assert signature["reason"].startswith("wrong-digest: ")


@pytest.mark.needs("openssl")
def test_both_kinds_of_signature_can_be_combined(certified, keys, tmp_path):
    words = vouching_flags(*certified)
    vouched, both = tmp_path / "vouched.wbn", tmp_path / "both.swbn"
    headgate("sign", VECTORS / "small_b1.wbn", *words, "-o", vouched)
    headgate("sign", vouched, "--integrity-block", "--key", keys["ed"], "-o", both, "--profile", "compat")
    found = verified(both, "--trust", certified[1])
    assert [signature["kind"] for signature in found["signatures"]] == ["integrity-block", "vouched-subset"]
    assert found["valid"]
    before = both.read_bytes()
    headgate("sign", both, *words, "-o", both, code=1)
    assert both.read_bytes() == before  # the integrity block would no longer hold
