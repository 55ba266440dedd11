"""headgate.bundle.signing.subset_signer."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.format import cbor
from headgate.bundle.reader import Bundle, locate
from headgate.bundle.signing import sign_bundle, verify_bundle
from headgate.errors import ConfigurationError, HeadgateError
from tests import signers
from tests.malformed import parts
from tests.unit.bundle.signing import forging
from tests.webbundles import add_sections

VECTORS = Path(__file__).parents[3] / "vectors" / "bundle"
URL = "https://example.com/"
LEAF = signers.certificate()
DATE = int(signers.NOW)
WEEK = 604_800


def signed(source: bytes, **changes: Any) -> bytes:
    options: dict[str, Any] = {
        "certificate": signers.certificate_pem(LEAF),
        "key": signers.pem(signers.p256()),
        "validity_url": "https://example.com/validity",
        "date": DATE,
        "expires": DATE + WEEK,
    }
    out = io.BytesIO()
    with open_bundle(source, profile="compat") as bundle:
        sign_bundle(bundle, out, **{**options, **changes})
    return out.getvalue()


def read(content: bytes) -> Bundle:
    return open_bundle(content, profile="compat")


def content_of(bundle: Bundle, url: str, variant_key: str | None = None) -> bytes:
    location = locate(bundle.metadata, url, variant_key)
    found = bundle.decode(location)
    return b"".join(found.pieces(0, found.length))


def bundle_of(*urls: str, version: Any = "b1", **options: Any) -> bytes:
    out = io.BytesIO()
    sections, order = options.pop("sections", {}), options.pop("section_order", ())
    if "critical" in options:
        sections = {"critical": cbor.encode(options.pop("critical")), **sections}
    with BundleWriter(out, version=version, primary_url=URL, manifest_url=URL, **options) as writer:
        add_sections(writer, sections, order)
        for url in urls:
            writer.add(url, headers={"content-type": "text/plain"}, payload=url.encode() * 1000)
    return out.getvalue()


SMALL = (VECTORS / "small_b1.wbn").read_bytes()
VARIANTS = (VECTORS / "variants_b1.wbn").read_bytes()


def test_signed_bundles_are_valid_and_complete() -> None:
    before, after = read(SMALL), read(signed(SMALL))
    verification = verify_bundle(after, now=signers.NOW, any_certificate=True)
    assert verification.valid
    assert verification.signatures[0].urls == tuple(after.metadata.requests)
    assert after.metadata.primary_url == before.metadata.primary_url
    assert after.metadata.manifest_url == before.metadata.manifest_url
    for url in before.metadata.requests:
        old, new = before.response(url), after.response(url)
        headers = dict(new.stored_headers)
        assert headers.pop("digest").startswith("mi-sha256-03=")
        assert headers.pop("content-encoding") == "mi-sha256-03"
        assert (new.status, headers) == (old.status, old.stored_headers)
        assert content_of(after, url) == old.payload


def test_every_variant_is_signed() -> None:
    leaf = signers.certificate(["variants.example.com"])
    content = signed(VARIANTS, certificate=signers.certificate_pem(leaf), validity_url="https://variants.example.com/v")
    before, after = read(VARIANTS), read(content)
    assert verify_bundle(after, now=signers.NOW, any_certificate=True).valid
    url = "https://variants.example.com/"
    keys = list(before.metadata.requests[url].locations)
    assert list(after.metadata.requests[url].locations) == keys
    for key in keys:
        assert content_of(after, url, key) == before.response(url, key).payload
    places = [location.offset for location in after.metadata.requests[url].locations.values()]
    assert len(set(places)) == 5  # two keys share a response, as they did


def test_duplicate_value_of_an_axis_is_signed_once() -> None:
    """Its key has two locations in the index, of which readers use the later."""
    leaf = signers.certificate_pem(signers.certificate(["test.example.com"]))
    locations = (parts.LOCATIONS[0], parts.LOCATIONS[1])
    entries = {parts.PRIMARY: parts.entry(*locations, variants=b"Accept-Language;en;en")}
    source = parts.Bundle().having(index=parts.index(entries), manifest=parts.text(parts.PRIMARY)).written()
    bundle = read(signed(source, certificate=leaf, validity_url=f"{parts.PRIMARY}validity"))
    assert verify_bundle(bundle, now=signers.NOW, any_certificate=True).valid
    assert bundle.metadata.requests[parts.PRIMARY].variants == "Accept-Language;en;en"
    assert content_of(bundle, parts.PRIMARY, "en") == b"{}"


@pytest.mark.parametrize("payload", [b"", b"short", bytes(10_000)])
def test_content_length_is_that_of_the_stored_payload(payload: bytes) -> None:
    out = io.BytesIO()
    headers = {"content-type": "text/plain", "content-length": str(len(payload))}
    with BundleWriter(out, version="b1", primary_url=URL, manifest_url=URL) as writer:
        writer.add(URL, headers=headers, payload=payload)
    bundle = read(signed(out.getvalue()))
    response = bundle.response(URL)
    assert response.stored_headers["content-length"] == str(len(response.payload))
    assert verify_bundle(bundle, now=signers.NOW, any_certificate=True).valid
    shown = bundle.decode(locate(bundle.metadata, URL))
    assert shown.decoded.headers == headers


def test_existing_signatures_are_kept() -> None:
    other = signers.certificate(key=signers.p256(2))
    once = signed(SMALL)
    twice = signed(once, certificate=signers.certificate_pem(other), key=signers.pem(signers.p256(2)))
    bundle = read(twice)
    assert [one.authority for one in bundle.metadata.vouched_subsets] == [0, 1]
    verification = verify_bundle(bundle, now=signers.NOW, any_certificate=True)
    assert [signature.valid for signature in verification.signatures] == [True, True]


def test_existing_certificates_are_shared() -> None:
    key = signers.p256(2)
    root = signers.root(key)
    chain = [signers.certificate(issuer=(root, key)), root]
    once = signed(SMALL, certificate=signers.certificate_pem(*chain), urls=[URL])
    twice = signed(once, certificate=signers.certificate_pem(*chain))
    bundle = read(twice)
    assert bundle.metadata.authorities == tuple(cbor.encode({"cert": signers.der(one)}) for one in chain)
    assert [one.authority for one in bundle.metadata.vouched_subsets] == [0, 0]
    assert verify_bundle(bundle, now=signers.NOW, trust=signers.certificate_pem(root)).valid


def test_signing_twice_changes_nothing() -> None:
    once = signed(SMALL)
    assert signed(once) == once


def test_only_urls_that_the_certificate_names_are_signed() -> None:
    urls = (URL, "https://example.com:8443/", "https://example.net/", "https://www.example.com/")
    source = bundle_of(*urls)
    bundle = read(signed(source))
    assert set(verify_bundle(bundle, now=signers.NOW, any_certificate=True).signatures[0].urls) == {
        URL,
        "https://example.com:8443/",
    }
    assert "digest" not in bundle.response("https://example.net/").headers
    chosen = read(signed(source, urls=["https://EXAMPLE.com"]))
    assert verify_bundle(chosen, now=signers.NOW, any_certificate=True).signatures[0].urls == (URL,)


def test_unknown_sections_are_kept() -> None:
    extra = cbor.encode(["something", 1])
    source = bundle_of(
        URL, sections={"extra": extra}, critical=["index"], section_order=["index", "extra", "critical", "manifest"]
    )
    content = signed(source)
    sections = read(content).metadata.sections
    names = "signatures index extra critical manifest responses"
    assert [section.name for section in sections] == names.split()
    extras = sections[2]
    assert content[extras.offset : extras.offset + extras.length] == extra
    assert verify_bundle(read(content), now=signers.NOW, any_certificate=True).valid


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"key": signers.pem(signers.ed())}, "signed by a P-256 key"),
    ({"key": signers.pem(signers.p256(2))}, "not that of the first certificate"),
    ({"key": b"garbage"}, "is not PEM"),
    ({"certificate": b"garbage"}, "neither PEM nor"),
    ({"certificate": signers.certificate_pem(signers.certificate(key=signers.p384()))}, "not that of the first"),
    ({"expires": DATE}, "not after its date"),
    ({"expires": DATE + WEEK + 1}, "seven at most"),
    ({"date": -1}, "not after its date"),
    ({"date": 2**63, "expires": 2**63 + 1}, "not after its date"),
    ({"validity_url": "http://example.com/v"}, "not an https URL"),
    ({"validity_url": "v"}, "not an https URL"),
    ({"validity_url": "https://example.com/v#f"}, "not an https URL"),
    ({"validity_url": "https://example.net/v"}, "does not name the host of the validity URL"),
    ({"urls": ["https://example.com/none"]}, "is not in the bundle"),
    ({"urls": ["no URL"]}, "is not in the bundle"),
    ({"urls": []}, "no URL to sign"),
]


def message_of(refused: Callable[[], object]) -> str:
    """Return the message of the `ConfigurationError` that is raised; empty without one."""
    try:
        refused()
    except ConfigurationError as error:
        return str(error)
    return ""


def test_signatures_that_readers_refuse_are_not_made() -> None:
    messages = [
        (changes, words, message_of(lambda changes=changes: signed(SMALL, **changes))) for changes, words in REFUSED
    ]
    assert [row for row in messages if row[1] not in row[2] or "\n" in row[2]] == []


def test_certificates_for_other_hosts_are_refused() -> None:
    other = signers.certificate_pem(signers.certificate(["example.net"]))
    with pytest.raises(HeadgateError, match=r"names example\.net, and the bundle has no URL of these hosts"):
        signed(SMALL, certificate=other, validity_url="https://example.net/v")
    with pytest.raises(ConfigurationError, match=r"the host of https://example\.com/; it names example\.net"):
        signed(SMALL, certificate=other, validity_url="https://example.net/v", urls=[URL])


@pytest.mark.parametrize(
    ("name", "words"), [("small_b2.wbn", "b2 has no signatures"), ("small_b2_signed.swbn", "b2 has no signatures")]
)
def test_b2_is_refused(name: str, words: str) -> None:
    with pytest.raises(HeadgateError, match=words):
        signed((VECTORS / name).read_bytes())


@pytest.mark.parametrize(
    ("headers", "payload", "words"),
    [
        ({"digest": "sha-256=AAAA"}, b"one", "has a Digest header"),
        ({"digest": forging.proven(b"one")[1]}, forging.proven(b"one")[0], "has a Digest header"),
        (
            {"digest": forging.proven(b"one")[1], "content-encoding": "mi-sha256-03"},
            forging.proven(b"two")[0],
            "does not match its Digest header",
        ),
    ],
)
def test_other_digests_are_refused(headers: dict[str, str], payload: bytes, words: str) -> None:
    out = io.BytesIO()
    with BundleWriter(out, version="b1", primary_url=URL, manifest_url=URL) as writer:
        writer.add(URL, headers={"content-type": "text/plain", **headers}, payload=payload)
    with pytest.raises(HeadgateError, match=words):
        signed(out.getvalue())


def test_overlapping_responses_are_not_signed() -> None:
    leaf = signers.certificate_pem(signers.certificate(["test.example.com"]))
    with pytest.raises(HeadgateError, match="the responses overlap"):
        signed(parts.nested(50).written(), certificate=leaf, validity_url=f"{parts.PRIMARY}validity")


def test_shared_responses_are_stored_once() -> None:
    """Otherwise a small bundle with many URLs for one large response could become a large one."""
    entries = {f"{parts.PRIMARY}{number}": parts.entry(parts.LOCATIONS[0]) for number in range(100)}
    entries |= {f"https://elsewhere.example/{number}": parts.entry(parts.LOCATIONS[0]) for number in range(100)}
    entries[parts.MANIFEST] = parts.entry(parts.LOCATIONS[1])
    source = parts.Bundle().having(index=parts.index(entries)).written()
    options = {"validity_url": f"{parts.PRIMARY}validity"}
    options["certificate"] = signers.certificate_pem(signers.certificate(["test.example.com"]))
    content = signed(source, **options)
    assert signed(content, **options) == content
    bundle = read(content)
    verification = verify_bundle(bundle, now=signers.NOW, any_certificate=True)
    assert len(verification.signatures[0].urls) == 101
    assert (verification.result, verification.unsigned_urls.count) == ("partly-signed", 101)
    ours, others = ({bundle.metadata.requests[f"{origin}{number}"] for number in range(100)} for origin in (
        parts.PRIMARY, "https://elsewhere.example/",
    ))  # fmt: skip
    assert (len(ours), len(others), len(ours | others)) == (1, 1, 2)
    for url in entries:
        assert content_of(bundle, url) == (b"{}" if url == parts.MANIFEST else b"hello")
    assert "digest" not in bundle.response("https://elsewhere.example/0").stored_headers


def test_unsigned_responses_are_unchanged() -> None:
    """Readers accept headers that the writer refuses; earlier signatures may cover them."""
    loose = parts.header_map({b":status": b"200", b"content-type": b"text/plain", b"x": b"\x01"})
    entries = {"https://elsewhere.example/": parts.entry((1, len(parts.response(loose))))}
    entries[parts.PRIMARY] = parts.entry((1 + len(parts.response(loose)), len(parts.RESPONSES[0])))
    made = parts.Bundle().having(
        index=parts.index(entries),
        manifest=parts.text(parts.PRIMARY),
        responses=parts.array(parts.response(loose), parts.RESPONSES[0]),
        primary=parts.array(parts.uint(1)),
        critical=parts.array(),
    )
    leaf = signers.certificate_pem(signers.certificate(["test.example.com"]))
    content = signed(made.written(), certificate=leaf, validity_url=f"{parts.PRIMARY}validity")
    bundle = read(content)
    verification = verify_bundle(bundle, now=signers.NOW, any_certificate=True)
    assert [one.valid for one in verification.signatures] == [True]
    location = bundle.metadata.requests["https://elsewhere.example/"]
    assert content[location.offset : location.offset + location.length] == parts.response(loose)
    kept = {one.name: content[one.offset : one.offset + one.length] for one in bundle.metadata.sections}
    assert (kept["primary"], kept["critical"]) == (parts.array(parts.uint(1)), parts.array())
