"""headgate.bundle.format.sections."""

import pytest

from headgate.bundle.format.cbor import StepError
from headgate.bundle.format.sections import IndexRules, read_index
from headgate.bundle.model import Section
from tests.malformed.parts import entry, index

RULES = IndexRules(Section("responses", 1_000, 500), has_variants=True, base_url=None)
URLS = [f"https://test.example.com/a/long/path/{number:05}" for number in range(40)]


class TestVariants:
    VALUE = b"Accept-Encoding;gzip;br, Accept-Language;en;fr"

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

    def test_variant_keys_of_all_urls_are_limited(self, monkeypatch):
        monkeypatch.setattr("headgate.bundle.format.sections.MAX_TOTAL_KEYS", 8)
        entries = {url: entry(*[(0, 1)] * 4, variants=self.VALUE) for url in URLS[:3]} | {URLS[3]: entry((0, 1))}
        assert read_index(index({url: entries[url] for url in (URLS[0], URLS[1], URLS[3])}), RULES)
        with pytest.raises(StepError, match="more than 8 variant keys in all") as caught:
            read_index(index(entries), RULES)
        assert caught.value.step == "3.3.1 step 4.4.2"
