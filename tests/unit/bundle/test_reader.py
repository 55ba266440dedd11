"""headgate.bundle.reader."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.bundle import FormatError, open_bundle, parse_metadata
from headgate.bundle.model import Location, Metadata, Section, VariantSet
from headgate.bundle.reader import locate, reject_overlapping_responses, select_location
from headgate.errors import ConfigurationError, HeadgateError, NotInBundle
from tests.malformed import parts
from tests.malformed.parts import (
    LOCATIONS,
    MANIFEST,
    PRIMARY,
    array,
    b2,
    entry,
    header_map,
    index,
    response,
    text,
    uint,
)
from tests.malformed.parts import Bundle as Parts

GOOD = Parts().written()
VARIANTS = b"Accept-Encoding;gzip;br, Accept-Language;en;fr"


def negotiated() -> bytes:
    """Write a bundle whose PRIMARY has four variants, the last two of one location."""
    keys = ("gzip;en", "gzip;fr", "br;en")
    headers = header_map({b":status": b"200", b"content-type": b"text/plain"})
    stored = [response(headers, key.encode()) for key in keys] + [response(headers, b"{}")]
    starts = [1 + sum(map(len, stored[:number])) for number in range(4)]
    places = [(start, len(item)) for start, item in zip(starts, stored, strict=True)]
    entries = {PRIMARY: entry(*places[:3], places[2], variants=VARIANTS), MANIFEST: entry(places[3])}
    return Parts().having(index=index(entries), responses=array(*stored)).written()


class TestSources:
    def test_bytes_paths_and_files_give_the_same(self, tmp_path):
        path = tmp_path / "good.wbn"
        path.write_bytes(GOOD)
        with path.open("rb") as file:
            for source in (GOOD, bytearray(GOOD), memoryview(GOOD), path, str(path), file, io.BytesIO(GOOD)):
                with open_bundle(source) as bundle:
                    assert bundle.metadata == parse_metadata(GOOD)
                    assert bytes(bundle.response(PRIMARY).payload) == b"hello"
                    assert bytes(bundle.read(0, bundle.size)) == GOOD

    def test_empty_file_is_refused(self, tmp_path):
        path = tmp_path / "empty.wbn"
        path.touch()
        with pytest.raises(FormatError) as caught:
            open_bundle(path)
        assert (caught.value.step, caught.value.offset) == ("3.3 step 2", 0)

    def test_pipes_are_read_to_their_end(self):
        reading, writing = os.pipe()
        os.write(writing, GOOD)
        os.close(writing)
        with open_bundle(f"/dev/fd/{reading}") as bundle:
            assert len(bundle.metadata.requests) == 2
        os.close(reading)

    @pytest.mark.parametrize("kind", ["path", "file"])
    def test_files_that_are_cut_while_they_are_read_raise_os_errors(self, tmp_path, kind):
        path = tmp_path / "good.wbn"
        path.write_bytes(GOOD)
        with path.open("rb", buffering=0) as file, open_bundle(path if kind == "path" else file) as bundle:
            path.write_bytes(GOOD[:-30])
            with pytest.raises(OSError, match="the file has been written to since it was opened"):
                list(bundle.exchanges())

    def test_missing_files_raise_os_errors(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            open_bundle(tmp_path / "missing.wbn")

    def test_refused_files_are_closed(self, tmp_path):
        path = tmp_path / "bad.wbn"
        path.write_bytes(b"nothing of the kind")
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(FormatError):
            open_bundle(path)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


class TestMetadata:
    def test_relative_urls_of_b2_are_resolved_with_the_base_or_the_primary_url(self):
        relative = b2().having(index=index({"a.css": array(uint(1), uint(10))})).written()
        assert set(parse_metadata(relative).requests) == {PRIMARY + "a.css"}
        base = "https://elsewhere.example/x/site.wbn"
        assert set(parse_metadata(relative, base_url=base).requests) == {"https://elsewhere.example/x/a.css"}

    def test_relative_urls_of_b2_without_a_base_are_kept(self):
        relative = index({"a.css": array(*map(uint, LOCATIONS[0])), "/b?c": array(*map(uint, LOCATIONS[1]))})
        for primary, expected in ((None, None), (text("a.css"), "a.css")):
            bundle = open_bundle(b2().having(primary=primary, index=relative).written())
            assert bundle.metadata.primary_url == expected
            assert set(bundle.metadata.requests) == {"a.css", "/b?c"}
            assert bytes(bundle.response("a.css").payload) == b"hello"
        for wrong in ("//u@host/", "a#b", "https://"):
            with pytest.raises(FormatError):
                parse_metadata(b2().having(primary=None, index=index({wrong: array(uint(1), uint(1))})).written())

    def test_unknown_profiles_are_configuration_errors(self):
        with pytest.raises(ConfigurationError, match="'lax' is not a profile"):
            open_bundle(GOOD, profile="lax")


class TestExchanges:
    def test_exchanges_are_in_file_order(self):
        found = list(open_bundle(negotiated()).exchanges())
        assert [(exchange.url, exchange.variant_key) for exchange in found] == [
            (PRIMARY, "gzip;en"),
            (PRIMARY, "gzip;fr"),
            (PRIMARY, "br;en"),
            (PRIMARY, "br;fr"),
            (MANIFEST, None),
        ]
        assert found[2].location == found[3].location
        assert bytes(found[3].response.payload) == b"br;en"


@pytest.mark.parametrize("kind", ["bytes", "path", "file"])
def test_payloads_stay_valid_after_close(tmp_path, kind):
    path = tmp_path / "good.wbn"
    path.write_bytes(GOOD)
    with path.open("rb") as file:
        with open_bundle({"bytes": GOOD, "path": path, "file": file}[kind]) as bundle:
            payload = bundle.response(PRIMARY).payload
            expected = bytes(payload)
        assert bytes(payload) == expected


@pytest.mark.parametrize("base_url", ["example.com", "", "/a", "urn:x:y", "https://"])
def test_invalid_base_urls_are_configuration_errors(base_url):
    for read in (open_bundle, parse_metadata):
        with pytest.raises(ConfigurationError, match=rf"base_url {base_url!r} .* such as https://example.com/"):
            read(b2().written(), base_url=base_url)


SITE = "https://site.example"
KEYS = ("gzip;en", "gzip;fr", "identity;en", "identity;fr")
PAGE = {key: Location(offset, 1) for key, offset in zip(KEYS, (10, 20, 30, 30), strict=True)}
METADATA = Metadata(
    "b1",
    f"{SITE}/",
    None,
    {
        f"{SITE}/": Location(0, 5),
        f"{SITE}/page": VariantSet("Accept-Encoding;gzip;identity, Accept-Language;en;fr", PAGE),
    },
    (Section("responses", 0, 40),),
)


@pytest.mark.parametrize("url", [f"{SITE}/", SITE, f"{SITE}:443/x/../#part", "HTTPS://Site.Example/"])
def test_urls_are_found_in_any_form_and_without_fragment(url):
    assert locate(METADATA, url) == Location(0, 5)
    assert select_location(METADATA, url, {"accept": "text/html"}) == Location(0, 5)


@pytest.mark.parametrize("key", ["gzip;fr", "gzip; fr", '"gzip";fr', "gzip ;fr"])
def test_variant_keys_are_found_in_any_spelling(key):
    assert locate(METADATA, f"{SITE}/page", key) == Location(20, 1)


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        (f"{SITE}/other", None, "is not in the bundle"),
        ("no URL", None, "is not in the bundle"),
        (f"{SITE}/", "gzip;en", "has no variants; leave out the variant key 'gzip;en'"),
        (f"{SITE}/page", None, "has variants; name one of gzip;en, gzip;fr, identity;en, identity;fr, or select one"),
        (f"{SITE}/page", "br;en", "has no variant 'br;en'; name one of"),
        (f"{SITE}/page", "gzip, br", "has no variant"),
    ],
)
def test_errors_name_the_existing_variants(url, key, why):
    with pytest.raises(NotInBundle) as missing:
        locate(METADATA, url, key)
    assert why in str(missing.value)


def test_overlapping_responses_are_refused() -> None:
    nested = parts.nested(3).written()
    for content in (nested, nested[:-9]):  # which ends with the last byte of them
        with open_bundle(content) as bundle, pytest.raises(HeadgateError, match=r"3\d\d\d bytes in"):
            reject_overlapping_responses(bundle)


def test_shared_responses_count_once() -> None:
    entries = {f"{parts.PRIMARY}{number}": parts.entry(parts.LOCATIONS[0]) for number in range(100)}
    entries[parts.MANIFEST] = parts.entry(parts.LOCATIONS[1])
    with open_bundle(parts.Bundle().having(index=parts.index(entries)).written()) as bundle:
        reject_overlapping_responses(bundle)


def test_cut_responses_do_not_count() -> None:
    long = parts.response(payload=bytes(100_000))
    whole = parts.Bundle().answering(long).written()
    for end in (len(whole), len(whole) - 10, len(whole) - 100_000):
        with open_bundle(whole[:end]) as bundle:
            reject_overlapping_responses(bundle)


def test_claims_beyond_the_end_do_not_hide_overlaps() -> None:
    made = parts.nested(50)
    claimed = {name: len(content) for name, content in made.sections.items()} | {"responses": 2**40}
    lengths = parts.array(*(item for name, size in claimed.items() for item in (parts.text(name), parts.uint(size))))
    with open_bundle(replace(made, lengths=lengths).written()) as bundle:
        assert bundle.metadata.length > 2**40
        with pytest.raises(HeadgateError, match="the responses overlap"):
            reject_overlapping_responses(bundle)
