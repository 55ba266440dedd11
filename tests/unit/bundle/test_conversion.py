"""headgate.bundle.conversion: a bundle in another version of the format."""

import io
import os
import tracemalloc
from pathlib import Path

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.conversion import convert
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.format.cbor import encode
from headgate.bundle.signing import sign_bundle, verify_bundle
from headgate.errors import ConfigurationError, HeadgateError
from tests import signers
from tests.cbor_values import decode
from tests.malformed.parts import LOCATIONS, array, b2, index, text, uint
from tests.webbundles import add_sections

VECTORS = Path(__file__).parents[2] / "vectors" / "bundle"
PAGE, MANIFEST = "https://example.com/", "https://example.com/manifest.webmanifest"
OTHER = "https://other.example"
TEXT = {"content-type": "text/plain"}


def converted(source, version, *, remarks=None, **options):
    target = io.BytesIO()
    with open_bundle(source, profile="compat") as bundle:
        assert convert(bundle, target, version=version, **options) == (remarks or [])
    return target.getvalue()


def written(*exchanges, **options):
    target = io.BytesIO()
    options = {"version": "b1", "primary_url": PAGE, **options}
    if options["version"] != "b2":
        options.setdefault("manifest_url", PAGE)
    extra = options.pop("sections", {})
    if "critical" in options:
        extra = {"critical": encode(options.pop("critical")), **extra}
    order = options.pop("section_order", ())
    with BundleWriter(target, **options) as writer:
        add_sections(writer, extra, order)
        for url, more in exchanges:
            writer.add(url, **{"headers": TEXT, **more})
    return target.getvalue()


def held(source):
    """Say what a bundle holds, places apart."""
    with open_bundle(source, profile="compat") as bundle:
        return [
            (stored.url, stored.variant_key, stored.response.status, stored.response.stored_headers,
             bytes(stored.response.payload))
            for stored in bundle.exchanges()
        ]  # fmt: skip


def sections(source):
    """Give the small sections, name to value."""
    with open_bundle(source, profile="compat") as bundle:
        return {
            section.name: decode(bytes(bundle.read(section.offset, section.length)))
            for section in bundle.metadata.sections[:-1]
            if section.name != "index"
        }


NO_B2_SIGNATURES = "the signatures are left out: b2 has none"


@pytest.mark.parametrize("name", ["small_b1", "variants_b1"])
def test_conversion_there_and_back_is_unchanged(name):
    source = (VECTORS / f"{name}.wbn").read_bytes()
    there = converted(source, "draft-01")
    assert there[0] == 0x84
    assert held(there) == held(source)
    assert converted(there, "b1") == source


def test_b2_has_the_primary_url_in_a_section():
    source = (VECTORS / "small_b1.wbn").read_bytes()
    there = converted(source, "b2")
    assert held(there) == held(source)
    assert list(sections(there)) == ["primary", "manifest"]
    assert converted(there, "b1") == source


@pytest.mark.parametrize("version", ["b1", "draft-01"])
def test_b1_and_draft_01_need_a_manifest(version):
    source = VECTORS / "small_b2.wbn"
    with pytest.raises(HeadgateError, match=rf"lacks a manifest, which {version} must have; .* \(--manifest-url\)"):
        converted(source, version)
    asked = f"{PAGE}assets/9e3779b1/file-1.js?v=1"
    there = converted(source, version, manifest_url=asked)
    assert sections(there) == {"manifest": asked}
    assert held(there) == held(source)


def test_missing_manifest_is_accepted_in_the_same_version():
    source = (VECTORS / "hello_b1.wbn").read_bytes()
    remark = "the manifest section is missing, so strict readers refuse the bundle (3.3 step 24)"
    assert converted(source, "b1", remarks=[remark]) == source


def test_manifest_must_be_in_the_bundle():
    """3.3.2: "The URL MUST refer to the one or more response(s) contained in the bundle itself." """
    with pytest.raises(ConfigurationError, match=r"manifest URL https://example.com/none is not in the bundle"):
        converted(VECTORS / "small_b2.wbn", "b1", manifest_url="https://example.com/none")
    # The manifest section stands before the index.
    absent = MANIFEST.replace("manifest", "nowhere_", 1)
    source = written((PAGE, {}), (MANIFEST, {}), version="b1", manifest_url=MANIFEST)
    elsewhere = source.replace(MANIFEST.encode(), absent.encode(), 1)
    with pytest.raises(HeadgateError, match=rf"does not contain its manifest {absent}, which draft-01 must"):
        converted(elsewhere, "draft-01")
    remark = f"the manifest URL {absent} is left out: it is not in the bundle"
    assert "manifest" not in sections(converted(elsewhere, "b2", remarks=[remark]))


def test_primary_url_of_b2_must_be_in_the_bundle():
    """Of b2's primary section the same is asked; in b1 it is a fallback, and may be anywhere."""
    elsewhere = written((PAGE, {}), version="b1", primary_url=OTHER, manifest_url=PAGE)
    remark = f"the primary URL {OTHER}/ is left out: it is not in the bundle"
    assert "primary" not in sections(converted(elsewhere, "b2", remarks=[remark]))
    with pytest.raises(ConfigurationError, match=rf"primary URL {OTHER}/x is not in the bundle"):
        converted(elsewhere, "b2", primary_url=f"{OTHER}/x")
    with open_bundle(converted(elsewhere, "draft-01")) as bundle:
        assert bundle.metadata.primary_url == f"{OTHER}/"


def test_b1_without_a_primary_url_is_refused():
    source = written((PAGE, {}), version="b2", primary_url=None)
    with pytest.raises(HeadgateError, match="lacks a primary URL, which b1 must have"):
        converted(source, "b1", manifest_url=PAGE)
    with open_bundle(converted(source, "b1", primary_url=f"{PAGE}#top", manifest_url=PAGE)) as b1:
        assert b1.metadata.primary_url == f"{PAGE}#top"


@pytest.mark.parametrize("version", ["b1", "b2"])
def test_relative_urls_need_a_base(version):
    source = b2().having(
        index=index({"a.css": array(*map(uint, LOCATIONS[0])), "/": array(*map(uint, LOCATIONS[1]))}), primary=text("/")
    )
    options = {"manifest_url": PAGE} if version == "b1" else {}
    with pytest.raises(HeadgateError, match=r"relative URLs such as '[^']+'; .* \(--base-url\)"):
        converted(source.written(), version)
    target = io.BytesIO()
    with open_bundle(source.written(), base_url=f"{PAGE}b/c", profile="compat") as bundle:
        assert convert(bundle, target, version=version, **options) == []
    assert [url for url, *_ in held(target.getvalue())] == [f"{PAGE}b/a.css", PAGE]


def test_variants_are_refused_for_b2():
    with pytest.raises(HeadgateError, match=r"^https://variants.example.com/ has variants, which b2 does not have"):
        converted(VECTORS / "variants_b1.wbn", "b2")


def test_duplicate_value_of_an_axis_has_the_later_location():
    source = written(
        (PAGE, {"variants": "Accept;a/b;a/c", "variant_key": "a/b"}), (PAGE, {"variant_key": "a/c"}), manifest_url=PAGE
    ).replace(b"Accept;a/b;a/c", b"Accept;a/b;a/b")
    there = converted(source, "draft-01")
    with open_bundle(there) as bundle:
        (entry,) = bundle.metadata.requests.values()
        assert entry.variants == "Accept;a/b;a/b"
    assert held(there) == held(source)


def test_responses_are_copied_unchanged():
    """A header that our own writer would not write is one that readers take: FETCH forbids NUL, CR and LF alone."""
    odd = written((PAGE, {"headers": {"x": "ab", **TEXT}}), manifest_url=PAGE).replace(b"ab", b"\x01\xff")
    assert converted(odd, "b1") == odd
    assert held(converted(odd, "b2"))[0][3]["x"] == "\x01\xff"


def test_real_signature_stays_valid_in_draft_01():
    target = io.BytesIO()
    proof = {"certificate": signers.certificate_pem(signers.certificate()), "key": signers.pem(signers.p256())}
    date = int(signers.NOW)
    with open_bundle(written((PAGE, {"payload": b"<p>"}), manifest_url=PAGE)) as bundle:
        sign_bundle(bundle, target, validity_url=f"{PAGE}v", date=date, expires=date + 60, **proof)
    there = converted(target.getvalue(), "draft-01")
    for source in (there, converted(there, "b1")):
        with open_bundle(source) as bundle:
            assert verify_bundle(bundle, now=date + 1, any_certificate=True).valid
    assert converted(there, "b1") == target.getvalue()


def test_critical_names_sections_of_the_copy():
    """3.3.4: "sections of the bundle that the client needs to understand"."""
    signatures = encode([[], []])
    options = {"manifest_url": PAGE, "sections": {"signatures": signatures}}
    both = written((PAGE, {}), critical=["signatures", "index"], **options)
    assert sections(converted(both, "draft-01"))["critical"] == ["signatures", "index"]
    assert sections(converted(both, "b2", remarks=[NO_B2_SIGNATURES]))["critical"] == ["index"]
    alone = written((PAGE, {}), critical=["signatures"], **options)
    assert "critical" not in sections(converted(alone, "b2", remarks=[NO_B2_SIGNATURES]))
    primary = written((PAGE, {}), version="b2", critical=["primary", "index"])
    assert sections(converted(primary, "b1", manifest_url=PAGE)) == {"manifest": PAGE, "critical": ["index"]}


@pytest.mark.parametrize("version", ["b1", "draft-01", "b2"])
def test_unknown_sections_keep_their_positions(version):
    order = ["x", "index", "y", "manifest"]
    extra = {"x": encode({"a": [1]}), "y": encode("why")}
    source = written((PAGE, {}), manifest_url=PAGE, sections=extra, section_order=order)
    with open_bundle(converted(source, version)) as bundle:
        names = [section.name for section in bundle.metadata.sections]
        assert names == [*(["primary"] if version == "b2" else []), *order, "responses"]
    assert sections(converted(source, version))["x"] == {"a": [1]}


def test_payloads_are_not_kept_in_memory(tmp_path):
    payload = os.urandom(300_000)
    with BundleWriter(tmp_path / "in", primary_url=f"{PAGE}0") as writer:
        for number in range(30):
            writer.add(f"{PAGE}{number}", headers=TEXT, payload=payload)
    told = []
    with (tmp_path / "in").open("rb") as file, open_bundle(file, profile="compat") as bundle:
        tracemalloc.start()
        try:
            convert(bundle, tmp_path / "out", version="b2", progress=lambda done, total: told.append((done, total)))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 2_000_000, "9 MB were written"
    assert held(tmp_path / "out") == held(tmp_path / "in")
    assert told[-1] == ((tmp_path / "out").stat().st_size,) * 2
