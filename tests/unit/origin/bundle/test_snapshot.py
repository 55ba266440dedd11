import os

import pytest

from headgate.errors import FormatError, VersionError
from headgate.http.date import parse_http_date
from headgate.origin.bundle.snapshot import BundleSnapshot
from tests import webbundles


@pytest.mark.parametrize(("version", "v"), [("b1", b"b1"), ("b2", b"b2"), ("draft-01", b"1")])
def test_the_media_type_has_the_version_that_the_file_has(snapshot, version, v):
    fields = dict(snapshot(version=version).representation.fields)
    assert fields[b"content-type"] == b"application/webbundle;v=" + v
    assert fields[b"x-content-type-options"] == b"nosniff"


def test_the_tag_is_that_of_the_bytes_and_of_nothing_else(bundle, tmp_path):
    path = bundle({"url": "/", "payload": b"one"})
    first = BundleSnapshot(path)
    copy = tmp_path / "copy.wbn"
    copy.write_bytes(path.read_bytes())
    os.utime(copy, (0, 0))
    assert BundleSnapshot(copy).representation.validators.etag == first.representation.validators.etag
    assert bundle({"url": "/", "payload": b"two"}) == path
    os.utime(path, ns=(0, first.state.modified))
    second = BundleSnapshot(path)
    assert (second.state.size, second.state.modified) == (first.state.size, first.state.modified)
    assert second.representation.validators.etag != first.representation.validators.etag


def test_last_modified_is_the_files_and_never_in_the_future(bundle):
    path = bundle()
    os.utime(path, (0, 784_111_777))
    assert dict(BundleSnapshot(path).representation.fields)[b"last-modified"] == b"Sun, 06 Nov 1994 08:49:37 GMT"
    os.utime(path, (0, 2**33))
    modified = parse_http_date(dict(BundleSnapshot(path).representation.fields)[b"last-modified"])
    assert modified is not None
    assert modified < 2**33


def test_invalid_content_is_refused(tmp_path, bundle):
    path = tmp_path / "page.html"
    path.write_bytes(b"<!doctype html>")
    with pytest.raises(FormatError, match="not a bundle"):
        BundleSnapshot(path)
    path.write_bytes(bundle().read_bytes().replace(b"b1\0\0", b"b9\0\0", 1))
    with pytest.raises(VersionError):
        BundleSnapshot(path)
    with pytest.raises(FileNotFoundError):
        BundleSnapshot(tmp_path / "none.wbn")


def test_the_profile_says_what_is_taken(bundle):
    path = webbundles.without_manifest(bundle())
    with pytest.raises(FormatError, match="manifest"):
        BundleSnapshot(path)
    assert BundleSnapshot(path, profile="compat").metadata.manifest_url is None


def test_an_integrity_block_is_part_of_the_file_and_not_of_its_responses(bundle, tmp_path):
    plain = bundle({"url": "/", "payload": b"home"})
    signed = tmp_path / "signed.swbn"
    # A block without signatures: array of 4, magic, version, attributes, an empty list.
    block = bytes.fromhex("8448f09f968bf09f93a644326200 00a16b77656242756e646c654964") + b"\x61x" + b"\x80"
    signed.write_bytes(block + plain.read_bytes())
    snapshot = BundleSnapshot(signed)
    assert snapshot.is_whole
    assert snapshot.representation.part.length == signed.stat().st_size
    location = snapshot.metadata.requests["https://site.example/"]
    _, content = snapshot.content(location, snapshot.head(location))
    assert content.read() == b"home"
