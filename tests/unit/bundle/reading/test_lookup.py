from array import array

import pytest

from headgate.bundle.model import Location, Metadata, Section, VariantSet
from headgate.bundle.reading.lookup import locate, select_location
from headgate.errors import NotInBundle

SITE = "https://site.example"
PAGE = array("Q", [10, 1, 20, 1, 30, 1, 30, 1])
METADATA = Metadata(
    "b1",
    f"{SITE}/",
    None,
    {
        f"{SITE}/": Location(0, 5),
        f"{SITE}/page": VariantSet("Accept-Encoding;gzip;identity, Accept-Language;en;fr", PAGE),
    },
    (Section("responses", 0, 40),),
)


@pytest.mark.parametrize("url", [f"{SITE}/", SITE, f"{SITE}:443/x/../#part", "HTTPS://Site.Example/"])
def test_a_url_is_found_in_any_form_and_without_its_fragment(url):
    assert locate(METADATA, url) == Location(0, 5)
    assert select_location(METADATA, url, {"accept": "text/html"}) == Location(0, 5)


@pytest.mark.parametrize("key", ["gzip;fr", "gzip; fr", '"gzip";fr', "gzip ;fr"])
def test_a_key_is_found_however_it_is_written(key):
    assert locate(METADATA, f"{SITE}/page", key) == Location(20, 1)


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        (f"{SITE}/other", None, "is not in the bundle"),
        ("no URL", None, "is not in the bundle"),
        (f"{SITE}/", "gzip;en", "has no variants; leave out the variant key 'gzip;en'"),
        (f"{SITE}/page", None, "has variants; name one of gzip;en, gzip;fr, identity;en, identity;fr, or select one"),
        (f"{SITE}/page", "br;en", "has no variant 'br;en'; name one of"),
        (f"{SITE}/page", "gzip, br", "has no variant"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(url, key, why):
    with pytest.raises(NotInBundle) as missing:
        locate(METADATA, url, key)
    assert why in str(missing.value)


def test_a_variant_is_selected_by_the_request():
    headers = {"accept-encoding": "gzip", "accept-language": "fr"}
    assert select_location(METADATA, f"{SITE}/page", headers) == Location(20, 1)
    with pytest.raises(NotInBundle):
        select_location(METADATA, f"{SITE}/other", headers)
