"""Who has which response, as section 3.3.1 of bundled-exchanges-01 wants the index filled."""

import pytest

from headgate.bundle.writing.index_builder import IndexBuilder, parse_axes
from headgate.bundle.writing.layout import VariantEntry
from headgate.errors import ConfigurationError

URL = "https://example.com/"
VARIANTS = "Accept-Encoding;gzip;br, Accept-Language;en;fr;ja"


def placed(*keys, variants=VARIANTS):
    placing = IndexBuilder()
    for ordinal, key in enumerate(keys):
        placing.place_variant(URL, ordinal, variants, key)
    return placing


def test_a_url_has_one_response():
    placing = IndexBuilder()
    placing.place(URL, 0, stored=URL)
    placing.place(f"{URL}a", 1, stored="a")
    assert placing.finish() == {URL: 0, "a": 1}
    assert f"{URL}a" in placing
    for again in (
        lambda: placing.place(URL, 2, stored=URL),
        lambda: placing.place_variant(URL, 2, "Accept;a/b", "a/b"),
    ):
        with pytest.raises(ConfigurationError, match="added before"):
            again()


def test_keys_are_in_row_major_order():
    """3.3.1: "one "location-in-responses" pair for each [...] in lexicographic (row-major) order"."""
    index = placed("br;ja", "br;fr", "br;en", "gzip;ja", "gzip;fr", "gzip;en").finish()
    assert index == {URL: VariantEntry(VARIANTS.encode(), [5, 4, 3, 2, 1, 0])}


def test_keys_may_share_a_response():
    index = placed(["gzip;en", "br;en"], ("gzip;fr", "br; fr"), "gzip;ja", ["br;ja"]).finish()
    assert index[URL].ordinals == [0, 1, 2, 0, 1, 3]


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
        ([], "say with variant_key which one"),
        (None, "say with variant_key which one"),
        ("br;en", "the variant br;en was added before"),
        (["gzip;en", "br;en"], "the variant br;en was added before"),
    ],
)
def test_a_key_that_cannot_be(key, fault):
    placing = placed("br;en")
    with pytest.raises(ConfigurationError, match=fault):
        placing.place_variant(URL, 1, VARIANTS, key)
    placing.place_variant(URL, 1, VARIANTS, "gzip;en")  # the failure placed nothing


def test_the_variants_are_said_once():
    placing = placed("br;en")
    placing.place_variant(URL, 1, None, "br;fr")
    with pytest.raises(ConfigurationError, match=r"its variants are .* already"):
        placing.place_variant(URL, 1, "Accept;a/b", "a/b")
    with pytest.raises(ConfigurationError, match="a variant key and no `variants`"):
        placing.place_variant(f"{URL}other", 1, None, "a/b")
    assert f"{URL}other" not in placing
    with pytest.raises(ConfigurationError, match="added before"):
        placing.place(URL, 1, stored=URL)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "is not a valid Variants value"),
        ("Accept-Encoding", "is not a valid Variants value"),
        ("Accept-Encoding;;", "is not a valid Variants value"),
        ("Accept-Encoding;gzip;gzip", "has a value twice"),
        ("Accept;" + ";".join(f"a/b{number}" for number in range(10_001)), "10001 variant keys; a bundle holds 10000"),
        ("A;a;b, " * 80 + "B;c", "variant keys; a bundle holds 10000"),
        ("A;a;b, B;" + "c" * 524_287, "variant keys of 1048578 characters; a bundle holds 1048576"),
    ],
)
def test_invalid_variants_values(value, fault):
    with pytest.raises(ConfigurationError, match=fault):
        parse_axes(value)


def test_as_many_keys_as_anybody_reads():
    values = [f"a/b{number}" for number in range(10_000)]
    placing = placed(values, variants="Accept;" + ";".join(values))
    assert placing.finish()[URL].ordinals == [0] * 10_000


def test_other_values_than_tokens_are_quoted():
    variants = 'Accept-Language;en;"*"'
    placing = placed("en", variants=variants)
    placing.place_variant(URL, 1, None, '"*"')
    assert placing.finish()[URL].ordinals == [0, 1]


def test_variant_keys_are_bounded_in_all(monkeypatch):
    monkeypatch.setattr("headgate.bundle.writing.index_builder.MAX_TOTAL_KEYS", 11)
    placing = placed("br;en")
    with pytest.raises(ConfigurationError, match="12 variant keys in all; a bundle holds 11"):
        placing.place_variant(f"{URL}other", 1, VARIANTS, "br;en")
    assert f"{URL}other" not in placing
    placing.place_variant(f"{URL}small", 1, "Accept;a/b;a/c", ["a/b", "a/c"])
    placing.place_variant(URL, 2, VARIANTS, "br;fr")
