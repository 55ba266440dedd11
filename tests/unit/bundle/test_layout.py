"""headgate.bundle.layout: the index (3.3.1) and the other sections of new bundles."""

import pytest

from headgate.bundle.format.cbor import encode
from headgate.bundle.layout import IndexBuilder, VariantEntry, build_sections, lay_out, parse_axes
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
def test_invalid_variants_are_refused(value, fault):
    with pytest.raises(ConfigurationError, match=fault):
        parse_axes(value)


def test_keys_are_limited_as_in_readers():
    values = [f"a/b{number}" for number in range(10_000)]
    placing = placed(values, variants="Accept;" + ";".join(values))
    assert placing.finish()[URL].ordinals == [0] * 10_000


def test_values_other_than_tokens_are_quoted():
    variants = 'Accept-Language;en;"*"'
    placing = placed("en", variants=variants)
    placing.place_variant(URL, 1, None, '"*"')
    assert placing.finish()[URL].ordinals == [0, 1]


def test_variant_keys_of_all_urls_are_limited(monkeypatch):
    monkeypatch.setattr("headgate.bundle.layout.MAX_TOTAL_KEYS", 11)
    placing = placed("br;en")
    with pytest.raises(ConfigurationError, match="12 variant keys in all; a bundle holds 11"):
        placing.place_variant(f"{URL}other", 1, VARIANTS, "br;en")
    assert f"{URL}other" not in placing
    placing.place_variant(f"{URL}small", 1, "Accept;a/b;a/c", ["a/b", "a/c"])
    placing.place_variant(URL, 2, VARIANTS, "br;fr")


PAGE, MANIFEST = "https://example.com/", "https://example.com/manifest"


def made(version="b1", primary=PAGE, manifest=None, critical=(), sections=None, **order):
    return build_sections(version, primary, manifest, critical, sections or {}, **order)


def test_default_order_is_that_of_wbn():
    form = made(manifest=MANIFEST, critical=["index", "x"], sections={"y": encode(1), "x": encode([])})
    assert form.sections == {
        "manifest": encode(MANIFEST),
        "critical": encode(["index", "x"]),
        "y": b"\x01",
        "x": b"\x80",
        "index": b"",
    }
    assert list(form.sections) == ["manifest", "critical", "y", "x", "index"]


@pytest.mark.parametrize("version", ["b1", "draft-01", "b2"])
def test_primary_url_is_a_section_in_b2_only(version):
    assert ("primary" in made(version).sections) is (version == "b2")
    assert "primary" not in made(version, primary=None).sections


@pytest.mark.parametrize("last", [[], ["responses"]])
def test_given_order_is_kept(last):
    form = made(manifest=MANIFEST, sections={"x": b"\x00"}, order=["index", "x", "manifest", *last])
    assert list(form.sections) == ["index", "x", "manifest"]


@pytest.mark.parametrize(
    "order",
    [[], ["index"], ["index", "manifest", "manifest"], ["responses", "index", "manifest"], ["index", "manifest", "x"]],
)
def test_order_must_name_every_section_once(order):
    """3.3 step 20: "If the "responses" section is not last in "sectionLengths", return a "format error" "."""
    with pytest.raises(ConfigurationError, match="does not name each section once: manifest, index, responses"):
        made(manifest=MANIFEST, order=order)


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        (b"", "end where a CBOR item"),
        (b"\x18\x01", "not its shortest form at byte 0"),
        (b"\x01\x01", "1 more bytes follow the item at byte 1"),
        (b"\x9f\xff", "indefinite"),
        (b"\xa2\x02\x00\x01\x00", "not in order"),
        (b"\x42a", "has only 1 left"),
    ],
)
def test_sections_are_one_deterministic_item(item, fault):
    """3.5: "All of these items need to be deterministically encoded." """
    with pytest.raises(
        ConfigurationError, match=f"the section 'x' is not a deterministically encoded CBOR item: .*{fault}"
    ):
        made(sections={"x": item})


def test_sections_may_nest_deeply():
    item = b"\x81" * 5_000 + b"\x80"
    assert made(sections={"x": item}).sections["x"] == item


@pytest.mark.parametrize("name", ["index", "manifest", "critical", "responses", "primary"])
def test_built_sections_are_not_accepted_as_bytes(name):
    with pytest.raises(ConfigurationError, match="is made from other arguments"):
        made("b2", sections={name: b"\x80"})


def test_primary_is_any_section_outside_of_b2():
    assert made(sections={"primary": b"\x80"}).sections["primary"] == b"\x80"


@pytest.mark.parametrize("name", ["\ud800", b"x", 1, ""])
def test_section_names_are_text(name):
    with pytest.raises(ConfigurationError, match="is not a section name"):
        made(sections={name: b"\x80"})
    with pytest.raises(ConfigurationError, match="is not a section name"):
        made(critical=[name])


def test_malformed_signatures_are_refused():
    """3.3.3 step 1: "parsing "sectionContents" as a CBOR item matching the "signatures" rule"."""
    vouched = encode([[{"cert": b"c"}], [{"authority": 0, "sig": b"s", "signed": b"x"}]])
    assert made(sections={"signatures": vouched}).sections["signatures"] == vouched
    for wrong in ([], [[], [], []], [[], [{"authority": 0}]], {"authorities": []}):
        with pytest.raises(ConfigurationError, match="'signatures' is no"):
            made(sections={"signatures": encode(wrong)})


def test_section_lengths_that_readers_refuse_are_refused():
    """3.3 step 9: "If "sectionLengthsLength" is 8192 (8*1024) or greater, return a "format error" "."""
    # head of an array, the name and its head, its length, index with its, responses with its
    rest = 1 + 3 + 1 + (6 + 1) + (10 + 1)
    assert len(lay_out(made(sections={"n" * (8191 - rest): b"\x00"}), {}, []).before) > 8_191
    with pytest.raises(ConfigurationError, match="the names of 3 sections take 8192 bytes"):
        lay_out(made(sections={"n" * (8192 - rest): b"\x00"}), {}, [])
