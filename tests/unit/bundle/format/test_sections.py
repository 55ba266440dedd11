"""headgate.bundle.format.sections."""

import pytest

from headgate.bundle.format.cbor import StepError
from headgate.bundle.format.sections import IndexRules, read_index
from headgate.bundle.model import Section
from tests.malformed.parts import entry, index

RULES = IndexRules(Section("responses", 1_000, 500), has_variants=True, base_url=None)
URLS = [f"https://test.example.com/{number}" for number in range(4)]


def test_variant_keys_of_all_urls_are_limited(monkeypatch):
    monkeypatch.setattr("headgate.bundle.format.sections.MAX_TOTAL_KEYS", 8)
    variants = b"Accept-Encoding;gzip;br, Accept-Language;en;fr"
    entries = {url: entry(*[(0, 1)] * 4, variants=variants) for url in URLS[:3]} | {URLS[3]: entry((0, 1))}
    assert read_index(index({url: entries[url] for url in (URLS[0], URLS[1], URLS[3])}), RULES)
    with pytest.raises(StepError, match="more than 8 variant keys in all") as caught:
        read_index(index(entries), RULES)
    assert caught.value.step == "3.3.1 step 4.4.2"
