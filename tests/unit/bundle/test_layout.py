"""headgate.bundle.layout: the index (3.3.1) and the other sections of new bundles."""

import pytest

from headgate.bundle.layout import BundleSpec, IndexBuilder, lay_out, normalize_url, parse_axes
from headgate.errors import ConfigurationError

URL = "https://example.com/"
VARIANTS = "Accept-Encoding;gzip;br, Accept-Language;en;fr;ja"


def placed(*keys, variants=VARIANTS):
    placing = IndexBuilder()
    for ordinal, key in enumerate(keys):
        placing.place_variant(URL, ordinal, variants, key)
    return placing


def test_second_response_of_a_url_is_refused():
    placing = IndexBuilder()
    placing.place(URL, 0)
    placing.place(f"{URL}a", 1)
    assert placing.finish() == {URL: 0, f"{URL}a": 1}
    assert f"{URL}a" in placing
    for again in (lambda: placing.place(URL, 2), lambda: placing.place_variant(URL, 2, "Accept;a/b", "a/b")):
        with pytest.raises(ConfigurationError, match="added before"):
            again()


def test_missing_keys_are_named():
    with pytest.raises(ConfigurationError, match=rf"{URL} lacks the variants gzip;fr, br;en, br;fr; add"):
        placed(["gzip;en", "gzip;ja"], "br;ja").finish()
    many = "Accept;" + ";".join(f"a/b{number}" for number in range(100))
    with pytest.raises(ConfigurationError, match=r"a/b1, .*a/b12 and 87 more; add"):
        placed("a/b0", variants=many).finish()


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("gzip;de", "unknown variant gzip;de; the keys are gzip;en, gzip;fr"),
        ("en;gzip", "unknown variant en;gzip"),
        ("gzip", "unknown variant gzip; the"),
        ("gzip;en, br;en", "is not a variant key"),
        ("", "is not a variant key"),
        ([], "name this one with variant_key"),
        (None, "name this one with variant_key"),
        ("br;en", "the variant br;en was added before"),
        (["gzip;en", "br;en"], "the variant br;en was added before"),
    ],
)
def test_invalid_keys_are_refused(key, fault):
    placing = placed("br;en")
    with pytest.raises(ConfigurationError, match=fault):
        placing.place_variant(URL, 1, VARIANTS, key)
    placing.place_variant(URL, 1, VARIANTS, "gzip;en")  # the failure placed nothing


def test_variants_come_with_the_first_response():
    placing = placed("br;en")
    placing.place_variant(URL, 1, None, "br;fr")
    with pytest.raises(ConfigurationError, match=r"its variants are .* already"):
        placing.place_variant(URL, 1, "Accept;a/b", "a/b")
    with pytest.raises(ConfigurationError, match="a variant key without `variants`"):
        placing.place_variant(f"{URL}other", 1, None, "a/b")
    assert f"{URL}other" not in placing
    with pytest.raises(ConfigurationError, match="added before"):
        placing.place(URL, 1)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "is not a valid Variants value"),
        ("Accept-Encoding", "is not a valid Variants value"),
        ("Accept-Encoding;;", "is not a valid Variants value"),
        ("Accept-Encoding;gzip;gzip", "has a value twice"),
        ("Accept;" + ";".join(f"a/b{number}" for number in range(1_001)), "1001 variant keys; the limit is 1000"),
        ("A;a;b, " * 80 + "B;c", "variant keys; the limit is 1000"),
        ("A;a;b, B;" + "c" * 65_535, "variant keys of 131074 characters; the limit is 131072"),
    ],
)
def test_invalid_variants_are_refused(value, fault):
    with pytest.raises(ConfigurationError, match=fault):
        parse_axes(value)


def test_keys_are_limited_as_in_readers():
    values = [f"a/b{number}" for number in range(1_000)]
    placing = placed(values, variants="Accept;" + ";".join(values))
    assert placing.finish()[URL].ordinals == [0] * 1_000


def test_variant_keys_of_all_urls_are_limited(monkeypatch):
    monkeypatch.setattr("headgate.bundle.layout.MAX_TOTAL_KEYS", 11)
    placing = placed("br;en")
    with pytest.raises(ConfigurationError, match="12 variant keys in all; a bundle holds 11"):
        placing.place_variant(f"{URL}other", 1, VARIANTS, "br;en")
    assert f"{URL}other" not in placing
    placing.place_variant(f"{URL}small", 1, "Accept;a/b;a/c", ["a/b", "a/c"])
    placing.place_variant(URL, 2, VARIANTS, "br;fr")


PAGE, MANIFEST = "https://example.com/", "https://example.com/manifest"


def test_urls_have_neither_fragment_nor_credentials():
    assert normalize_url("HTTPS://EXAMPLE.com:443/a/../\xe9") == "https://example.com/%C3%A9"
    assert normalize_url("https://EXAMPLE.com/#x", is_primary=True) == "https://example.com/#x"
    for options in ({}, {"is_primary": True}):
        with pytest.raises(ConfigurationError, match="'/a' is not an absolute URL"):
            normalize_url("/a", **options)
        with pytest.raises(ConfigurationError, match=r"^the URL of example.com/ has credentials; leave them out$"):
            normalize_url("https://me:secret@example.com/", **options)
        with pytest.raises(ConfigurationError, match="expected a URL such as"):
            normalize_url(7, **options)
    with pytest.raises(ConfigurationError, match=r"https://example.com/#x has a fragment"):
        normalize_url("https://example.com/#x")


def test_section_lengths_that_readers_refuse_are_refused():
    """3.3 step 9: "If "sectionLengthsLength" is 8192 (8*1024) or greater, return a "format error" "."""
    # head of an array, the name and its head, its length, index with its, responses with its
    rest = 1 + 3 + 1 + (6 + 1) + (10 + 1)
    assert len(lay_out(BundleSpec("b1", PAGE, {"n" * (8191 - rest): b"\x00", "index": b""}), {}, []).before) > 8_191
    with pytest.raises(ConfigurationError, match="the names of 3 sections take 8192 bytes"):
        lay_out(BundleSpec("b1", PAGE, {"n" * (8192 - rest): b"\x00", "index": b""}), {}, [])
