"""Sections as 3.1, 3.3 (steps 9 and 20) and 3.3.2 to 3.3.4 of bundled-exchanges-01 want them."""

import pytest

from headgate.bundle.format.cbor import encode
from headgate.bundle.writing.layout import lay_out
from headgate.bundle.writing.sections import build_sections
from headgate.errors import ConfigurationError

PAGE, MANIFEST = "https://example.com/", "https://example.com/manifest"


def made(version="b1", primary=PAGE, manifest=None, critical=(), sections=None, **order):
    return build_sections(version, primary, manifest, critical, sections or {}, **order)


def test_without_an_order_the_published_writers():
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
def test_the_primary_url_is_a_section_in_b2_alone(version):
    assert ("primary" in made(version).sections) is (version == "b2")
    assert "primary" not in made(version, primary=None).sections


@pytest.mark.parametrize("last", [[], ["responses"]])
def test_an_order_is_kept(last):
    form = made(manifest=MANIFEST, sections={"x": b"\x00"}, order=["index", "x", "manifest", *last])
    assert list(form.sections) == ["index", "x", "manifest"]


@pytest.mark.parametrize(
    "order",
    [[], ["index"], ["index", "manifest", "manifest"], ["responses", "index", "manifest"], ["index", "manifest", "x"]],
)
def test_an_order_names_every_section_once_and_responses_last(order):
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
def test_a_section_is_one_item_in_the_only_encoding_there_is(item, fault):
    """3.5: "All of these items need to be deterministically encoded." """
    with pytest.raises(
        ConfigurationError, match=f"the section 'x' is not a deterministically encoded CBOR item: .*{fault}"
    ):
        made(sections={"x": item})


def test_a_section_may_nest_as_deep_as_it_likes():
    item = b"\x81" * 5_000 + b"\x80"
    assert made(sections={"x": item}).sections["x"] == item


@pytest.mark.parametrize("name", ["index", "manifest", "critical", "responses", "primary"])
def test_sections_of_ours_are_not_given_in_bytes(name):
    with pytest.raises(ConfigurationError, match="is made from other arguments"):
        made("b2", sections={name: b"\x80"})


def test_a_section_that_is_called_primary_is_any_section_outside_of_b2():
    assert made(sections={"primary": b"\x80"}).sections["primary"] == b"\x80"


@pytest.mark.parametrize("name", ["\ud800", b"x", 1, ""])
def test_a_name_is_text(name):
    with pytest.raises(ConfigurationError, match="is not a section name"):
        made(sections={name: b"\x80"})
    with pytest.raises(ConfigurationError, match="is not a section name"):
        made(critical=[name])


def test_signatures_are_what_readers_take_for_them():
    """3.3.3 step 1: "parsing "sectionContents" as a CBOR item matching the "signatures" rule"."""
    vouched = encode([[{"cert": b"c"}], [{"authority": 0, "sig": b"s", "signed": b"x"}]])
    assert made(sections={"signatures": vouched}).sections["signatures"] == vouched
    for wrong in ([], [[], [], []], [[], [{"authority": 0}]], {"authorities": []}):
        with pytest.raises(ConfigurationError, match="'signatures' is no"):
            made(sections={"signatures": encode(wrong)})


def test_section_lengths_are_shorter_than_what_readers_refuse():
    """3.3 step 9: "If "sectionLengthsLength" is 8192 (8*1024) or greater, return a "format error" "."""
    # head of an array, the name and its head, its length, index with its, responses with its
    rest = 1 + 3 + 1 + (6 + 1) + (10 + 1)
    assert len(lay_out(made(sections={"n" * (8191 - rest): b"\x00"}), {}, []).before) > 8_191
    with pytest.raises(ConfigurationError, match="the names of 3 sections take 8192 bytes"):
        lay_out(made(sections={"n" * (8192 - rest): b"\x00"}), {}, [])
