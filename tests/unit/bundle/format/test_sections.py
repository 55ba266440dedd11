"""headgate.bundle.format.sections."""

import pytest

from headgate.bundle.format.cbor import CborError, StepError
from headgate.bundle.format.sections import IndexRules, read_index
from headgate.bundle.model import Location, Section, VariantSet
from tests.malformed.parts import array, data, entry, index, text, uint

RULES = IndexRules(Section("responses", 1_000, 500), has_variants=True, base_url=None)
B2 = IndexRules(Section("responses", 1_000, 500), has_variants=False, base_url="https://base.example/dir/page")
URLS = [f"https://test.example.com/a/long/path/{number:05}" for number in range(40)]


def b2_entry(offset: int, length: int) -> bytes:
    return array(uint(offset), uint(length))


class TestOneLocation:
    def test_offsets_count_from_the_first_byte_of_the_bundle(self):
        source = index({"https://a.example/": entry((1, 20)), URLS[0]: entry((21, 30))})
        assert read_index(source, RULES) == {"https://a.example/": Location(1_001, 20), URLS[0]: Location(1_021, 30)}

    def test_many_urls_of_one_origin_are_read(self):
        source = index({url: entry((number, 1)) for number, url in enumerate(URLS)})
        assert read_index(source, RULES) == {url: Location(1_000 + n, 1) for n, url in enumerate(URLS)}

    def test_urls_are_normalized(self):
        source = index({"HTTPS://Test.EXAMPLE.com:443/a/./b": entry((1, 2)), "urn:x:y": entry((3, 4))})
        assert set(read_index(source, RULES)) == {"https://test.example.com/a/b", "urn:x:y"}

    def test_locations_may_end_with_the_section(self):
        assert read_index(index({URLS[0]: entry((0, 500))}), RULES)
        for offset, length in ((1, 500), (500, 1), (2**64 - 1, 2**64 - 1)):
            with pytest.raises(StepError, match="ends beyond") as caught:
                read_index(index({URLS[0]: entry((offset, length))}), RULES)
            assert caught.value.step == "3.3.1 step 3.1"

    @pytest.mark.parametrize("spoiler", ["https://test.example.com/a/long/../path/x", URLS[0] + "/é", URLS[0] + "'"])
    def test_one_unusual_url_among_many_is_read(self, spoiler):
        entries = {url: entry((number, 1)) for number, url in enumerate(URLS)}
        found = read_index(index(entries | {spoiler: entry((77, 1))}), RULES)
        assert len(found) == len(URLS) + 1
        assert Location(1_077, 1) in found.values()

    @pytest.mark.parametrize(
        "spoiler", [URLS[0] + "#f", "https://u@test.example.com/aaaaaaaaaaaaaaa", "/relative/" * 4]
    )
    def test_one_wrong_url_among_many_is_refused(self, spoiler):
        entries = {url: entry((number, 1)) for number, url in enumerate(URLS)}
        with pytest.raises(StepError) as caught:
            read_index(index(entries | {spoiler: entry((77, 1))}), RULES)
        assert caught.value.step == "3.3.1 step 4.2"

    def test_two_keys_that_are_one_url_are_refused(self):
        for first, second in ((URLS[0], URLS[0].replace("/a/", "/./a/")), (URLS[0], "HTTPS" + URLS[0][5:])):
            with pytest.raises(StepError, match="appears twice") as caught:
                read_index(index({first: entry((0, 1)), second: entry((0, 1))}), RULES)
            assert caught.value.step == "3.3.1 step 4.3.2"

    @pytest.mark.parametrize("place", [0, 20, 39])
    def test_keys_out_of_order_are_refused(self, place):
        entries = [text(url) + entry((number, 1)) for number, url in enumerate(URLS)]
        entries[place], entries[place - 1] = entries[place - 1], entries[place]
        with pytest.raises(CborError, match="not in order"):
            read_index(b"\xb8" + bytes([len(URLS)]) + b"".join(entries), RULES)

    @pytest.mark.parametrize(
        "value", [b"\x80", b"\x81\x40", array(data(b""), uint(1)), b"\x84\x40\1\1\1", b"\xa0", b"\1"]
    )
    def test_malformed_values_are_refused(self, value):
        with pytest.raises(CborError) as caught:
            read_index(index({URLS[0]: value}), RULES)
        assert caught.value.step == "3.5.1 step 5"

    @pytest.mark.parametrize("key", [b"", b"x", b"\x78\x18", b"\xff" * 30, b"\x79\x00\x18" + b"a" * 24])
    def test_invalid_key_among_several_is_refused(self, key):
        entries = [text(url) + entry((number, 1)) for number, url in enumerate(URLS)]
        entries[20] = key + entry((20, 1))
        with pytest.raises(CborError):
            read_index(b"\xb8" + bytes([len(URLS)]) + b"".join(entries), RULES)
        with pytest.raises(CborError):
            read_index(b"\xb8" + bytes([len(URLS)]) + b"".join(entries[:19] + entries[20:21] + entries[19:20]), RULES)

    def test_several_locations_without_variants_are_refused(self):
        with pytest.raises(StepError) as caught:
            read_index(index({URLS[0]: entry((0, 1), (1, 1))}), RULES)
        assert caught.value.step == "3.3.1 step 4.3.1"

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

    def test_two_keys_may_share_a_location(self):
        shared = read_index(index({URLS[0]: entry((0, 1), (0, 1), variants=b"Accept;a;b")}), RULES)[URLS[0]]
        assert list(shared.locations.values()) == [Location(1_000, 1)] * 2

    @pytest.mark.parametrize(("count", "step"), [(3, "3.3.1 step 4.4.3"), (5, "3.3.1 step 4.4.3")])
    def test_wrong_number_of_locations_is_refused(self, count, step):
        with pytest.raises(StepError) as caught:
            read_index(index({URLS[0]: entry(*[(0, 1)] * count, variants=self.VALUE)}), RULES)
        assert caught.value.step == step

    def test_invalid_value_is_refused(self):
        with pytest.raises(StepError) as caught:
            read_index(index({URLS[0]: entry((0, 1), variants=b";;,")}), RULES)
        assert caught.value.step == "3.3.1 step 4.4.1"

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
    def test_index_values_are_one_location(self):
        source = index({url: b2_entry(number, 1) for number, url in enumerate(URLS)})
        assert read_index(source, B2) == {url: Location(1_000 + n, 1) for n, url in enumerate(URLS)}

    def test_relative_urls_are_resolved(self):
        found = read_index(index({"style.css": b2_entry(0, 1), "/": b2_entry(1, 1), "": b2_entry(2, 1)}), B2)
        assert set(found) == {
            "https://base.example/dir/style.css",
            "https://base.example/",
            "https://base.example/dir/page",
        }

    def test_index_values_of_b1_are_refused(self):
        with pytest.raises(CborError, match="3 items, the form of b1; expected 2"):
            read_index(index({URLS[0]: entry((0, 1))}), B2)
