import gc
import io
import tracemalloc

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.errors import ConfigurationError

PAGE, MANIFEST = "https://example.com/", "https://example.com/manifest.webmanifest"
HTML, TEXT = {"content-type": "text/html"}, {"content-type": "text/plain"}
VARIANTS = "Accept-Encoding;gzip;br, Accept-Language;en;fr;ja"


def begun(target=None, **options):
    """Begin a b1 bundle whose manifest is its page."""
    options = {"version": "b1", "primary_url": PAGE, **options}
    if options["version"] != "b2":
        options.setdefault("manifest_url", PAGE)
    return BundleWriter(io.BytesIO() if target is None else target, **options)


def written(*exchanges, **options):
    """Write exchanges, each a URL and the arguments of `add`, and give the bundle's bytes."""
    target = io.BytesIO()
    with begun(target, **options) as writer:
        for url, more in exchanges:
            writer.add(url, **more)
    assert writer.length == len(target.getvalue())
    return target.getvalue()


def whole(**options):
    """Write a bundle with a page and a manifest."""
    options.setdefault("manifest_url", MANIFEST)
    page, manifest = {"headers": HTML, "payload": b"<p>"}, {"headers": TEXT, "payload": b"{}"}
    return written((PAGE, page), (MANIFEST, manifest), **options)


def found(bundle, **how):
    with open_bundle(bundle, **how) as opened:
        return [
            (stored.url, stored.variant_key, stored.response.status, bytes(stored.response.payload))
            for stored in opened.exchanges()
        ]


@pytest.mark.parametrize(
    ("version", "lead"),
    [
        ("draft-01", "84 48 f09f8c90f09f93a6 44 31000000"),
        ("b1", "86 48 f09f8c90f09f93a6 44 62310000"),
        ("b2", "85 48 f09f8c90f09f93a6 44 62320000"),
    ],
)
def test_each_version_has_its_own_first_bytes(version, lead):
    """3.3 step 2, "84 48 F0 9F 8C 90 F0 9F 93 A6"; the later drafts have 86, and b2 has 85."""
    bundle = whole(version=version)
    assert bundle.startswith(bytes.fromhex(lead))
    with open_bundle(bundle) as opened:
        assert opened.metadata.version == version
        assert (opened.metadata.primary_url, opened.metadata.manifest_url) == (PAGE, MANIFEST)
    assert found(bundle) == [(PAGE, None, 200, b"<p>"), (MANIFEST, None, 200, b"{}")]


def test_b2_has_no_variants():
    writer = begun(version="b2")
    with pytest.raises(ConfigurationError, match="b2 does not have variants"):
        writer.add(PAGE, headers=TEXT, variants=VARIANTS, variant_key="gzip;en")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"version": "b3"}, "unknown version 'b3'; expected one of draft-01, b1, b2"),
        ({"primary_url": None}, "a b1 bundle needs a primary URL"),
        ({"primary_url": None, "version": "draft-01"}, "a draft-01 bundle needs a primary URL"),
        ({"manifest_url": None}, "a b1 bundle needs a manifest; set manifest_url, or write b2"),
        ({"manifest_url": None, "version": "draft-01"}, "a draft-01 bundle needs a manifest"),
        ({"primary_url": "a"}, "is not an absolute URL"),
        ({"manifest_url": "https://example.com/#a"}, "has a fragment"),
    ],
)
def test_invalid_options_are_refused_at_once(options, fault):
    with pytest.raises(ConfigurationError, match=fault):
        begun(**options)


@pytest.mark.parametrize(
    ("exchange", "fault"),
    [
        ({"payload": b"x"}, f"^{PAGE}: there is a payload and no Content-Type header"),
        ({"payload": b"x", "headers": {"content-type": "a/b", "x": "\n\0"}}, f"^{PAGE}: the value .* of x"),
        ({"status": 99}, f"^{PAGE}: the status 99"),
        ({"headers": TEXT, "payload": 7}, f"^{PAGE}: the payload is int"),
        ({"headers": {"x": "x" * 600_000}}, f"^{PAGE}: the headers take"),
        ({"variant_key": "gzip"}, f"^{PAGE}: there is a variant key without `variants`"),
        ({"variants": VARIANTS}, f"^{PAGE}: the URL has variants; name"),
        ({"variants": "?", "variant_key": "a"}, f"^{PAGE}: .* is not a valid Variants value"),
    ],
)
def test_refused_exchange_leaves_the_writer_unchanged(exchange, fault):
    target = io.BytesIO()
    with begun(target) as writer:
        with pytest.raises(ConfigurationError, match=fault):
            writer.add(PAGE, **exchange)
        writer.add(PAGE, headers=HTML, payload=b"<p>")
    assert target.getvalue() == written((PAGE, {"headers": HTML, "payload": b"<p>"}))


def test_primary_url_of_b2_must_be_in_the_bundle():
    """2.2 calls it "a reasonable URL to try to load instead", which may be elsewhere; b2's document wants it here."""
    with begun(version="b1", manifest_url=MANIFEST) as writer:
        writer.add(MANIFEST)
    assert f"the primary URL {PAGE} is not in the bundle" in writer.remarks()
    other = begun(version="b2")
    other.add(MANIFEST)
    with pytest.raises(ConfigurationError, match=f"the primary URL {PAGE} is not in the bundle"):
        other.close()
    written((PAGE, {}), version="b2", primary_url=f"{PAGE}#part")


def test_remarks_name_what_strict_readers_refuse():
    with begun() as writer:
        writer.add(PAGE, status=301, headers={"location": "/a"})
        writer.add(f"{PAGE}a", status=204)
    (empty,) = writer.remarks()
    assert empty.startswith("empty responses without a Content-Type, which strict readers refuse (3.4 step 9): 2, ")
    assert empty.endswith(f"the first is {PAGE}")
    with begun(manifest_url=PAGE) as writer:
        writer.add(PAGE, headers=HTML)
    assert writer.remarks() == []


def test_closed_writer_writes_no_second_bundle(tmp_path):
    with begun(tmp_path / "out.wbn") as writer:
        writer.add(PAGE)
        writer.close()
        (tmp_path / "out.wbn").unlink()
    writer.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="begin another"):
        writer.add(MANIFEST)


def add_and_fail(writer):
    with writer:
        writer.add(PAGE)
        raise ZeroDivisionError


def test_exception_in_the_block_writes_nothing(tmp_path):
    stream = io.BytesIO()
    for target in (tmp_path / "out.wbn", stream):
        writer = begun(target)
        with pytest.raises(ZeroDivisionError):
            add_and_fail(writer)
    assert list(tmp_path.iterdir()) == []
    assert stream.getvalue() == b""
    writer.close()  # which has nothing left to do
    assert stream.getvalue() == b""


def test_memory_does_not_grow_with_payloads(tmp_path):
    path = tmp_path / "payload"
    path.write_bytes(bytes(2_000_000))
    gc.collect()
    tracemalloc.start()
    try:
        with begun("/dev/null") as writer:
            for number in range(100):
                writer.add(f"{PAGE}file/{number}", headers=TEXT, payload=path)
                writer.add(f"{PAGE}part/{number}", headers=TEXT, payload=(bytes(100_000) for _ in range(10)))
            writer.add(PAGE, headers=TEXT)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000, "300 MB were written"


def test_an_exchange_takes_less_than_500_bytes():
    gc.collect()
    tracemalloc.start()
    try:
        writer = begun("/dev/null")
        for number in range(10_000):
            writer.add(f"{PAGE}{number:05}", headers={**TEXT, "etag": f'"{number}"'}, payload=b"")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / 10_000 < 500, "bytes for each"
