"""headgate.bundle.format.sections."""

import pytest

from headgate.bundle.format.cbor import CborError, StepError
from headgate.bundle.format.sections import IndexRules, read_index
from headgate.bundle.model import Location, Section, VariantSet
from tests.malformed.parts import array, entry, index, text, uint

RULES = IndexRules(Section("responses", 1_000, 500), has_variants=True, base_url=None)
B2 = IndexRules(Section("responses", 1_000, 500), has_variants=False, base_url="https://base.example/dir/page")
URLS = [f"https://test.example.com/a/long/path/{number:05}" for number in range(40)]


def b2_entry(offset: int, length: int) -> bytes:
    return array(uint(offset), uint(length))


class TestOneLocation:
    def test_offsets_count_from_the_first_byte_of_the_bundle(self):
        source = index({"https://a.example/": entry((1, 20)), URLS[0]: entry((21, 30))})
        assert read_index(source, RULES) == {"https://a.example/": Location(1_001, 20), URLS[0]: Location(1_021, 30)}

    def test_locations_may_end_with_the_section(self):
        assert read_index(index({URLS[0]: entry((0, 500))}), RULES)
        for offset, length in ((1, 500), (500, 1), (2**64 - 1, 2**64 - 1)):
            with pytest.raises(StepError, match="ends beyond") as caught:
                read_index(index({URLS[0]: entry((offset, length))}), RULES)
            assert caught.value.step == "3.3.1 step 3.1"

    def test_wrong_count_of_entries_is_refused_at_once(self):
        with pytest.raises(CborError):
            read_index(b"\xbb" + b"\xff" * 8 + text(URLS[0]) + entry((0, 1)), RULES)


class TestVariants:
    VALUE = b"Accept-Encoding;gzip;br, Accept-Language;en;fr"

    def test_keys_are_in_row_major_order(self):
        locations = tuple((number, 1) for number in range(4))
        found = read_index(index({URLS[0]: entry(*locations, variants=self.VALUE)}), RULES)[URLS[0]]
        assert isinstance(found, VariantSet)
        assert found.variants == self.VALUE.decode()
        assert list(found.locations) == ["gzip;en", "gzip;fr", "br;en", "br;fr"]
        assert [location.offset for location in found.locations.values()] == [1_000, 1_001, 1_002, 1_003]

    def test_variant_keys_of_a_url_are_limited_to_a_thousand(self):
        ten = ";".join(f"v{number}" for number in range(10))
        most = ", ".join(f"a{axis};{ten}" for axis in range(3)).encode()
        found = read_index(index({URLS[0]: entry(*[(0, 1)] * 1_000, variants=most)}), RULES)
        assert len(found[URLS[0]].locations) == 1_000
        with pytest.raises(StepError, match="the limit is 1000") as caught:
            read_index(index({URLS[0]: entry((0, 1), variants=most + b", b;x;y")}), RULES)
        assert caught.value.step == "3.3.1 step 4.4.2"

    def test_text_of_variant_keys_is_limited(self):
        thousand = "a;" + ";".join(f"v{number:04}" for number in range(1_000))
        locations = [(0, 1)] * 1_000
        most = f"{thousand}, b;{'b' * 125}".encode()
        assert len(read_index(index({URLS[0]: entry(*locations, variants=most)}), RULES)[URLS[0]].locations) == 1_000
        with pytest.raises(StepError, match="the limit is 131072") as caught:
            read_index(index({URLS[0]: entry(*locations, variants=most + b"b")}), RULES)
        assert caught.value.step == "3.3.1 step 4.4.2"

    def test_later_location_of_a_repeated_value_counts(self):
        found = read_index(index({URLS[0]: entry((0, 1), (1, 1), variants=b"Accept;a;a")}), RULES)[URLS[0]]
        assert found.locations == {"a": Location(1_001, 1)}

    def test_variant_keys_of_all_urls_are_limited(self, monkeypatch):
        monkeypatch.setattr("headgate.bundle.format.sections.MAX_TOTAL_KEYS", 8)
        entries = {url: entry(*[(0, 1)] * 4, variants=self.VALUE) for url in URLS[:3]} | {URLS[3]: entry((0, 1))}
        assert read_index(index({url: entries[url] for url in (URLS[0], URLS[1], URLS[3])}), RULES)
        with pytest.raises(StepError, match="more than 8 variant keys in all") as caught:
            read_index(index(entries), RULES)
        assert caught.value.step == "3.3.1 step 4.4.2"


class TestB2:
    def test_relative_urls_are_resolved(self):
        found = read_index(index({"style.css": b2_entry(0, 1), "/": b2_entry(1, 1), "": b2_entry(2, 1)}), B2)
        assert set(found) == {
            "https://base.example/dir/style.css",
            "https://base.example/",
            "https://base.example/dir/page",
        }
