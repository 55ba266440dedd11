"""The syntax of Variants and variant keys, and the choice among them, in the sentences of their drafts.

"Variants" is draft-ietf-httpbis-variants-05; "header-structure" is draft-ietf-httpbis-header-structure-10.
"""

import pytest

from headgate.bundle.variants import (
    MOST_KEY_TEXT,
    MOST_KEYS,
    Axis,
    count_keys,
    measure_keys,
    parse_key,
    parse_variants,
    select_key,
    variant_keys,
    write_key,
    write_variants,
)
from headgate.errors import ConfigurationError

ENCODINGS = Axis("Accept-Encoding", ("gzip", "br"))
LANGUAGES = Axis("Accept-Language", ("en", "fr", "ja"))
EXAMPLE = "Accept-Encoding;gzip;br, Accept-Language;en;fr;ja"


@pytest.mark.parametrize(
    ("value", "axes"),
    [
        (EXAMPLE, (ENCODINGS, LANGUAGES)),
        # Variants 2: "the only content-coding available for that resource is gzip".
        ("Accept-Encoding;gzip", (Axis("Accept-Encoding", ("gzip",)),)),
        # Variants 2: "no content-codings (beyond identity) are supported".
        ("accept-encoding", (Axis("accept-encoding", ()),)),
        ("Accept-Encoding;gzip;br, Accept-Language;en ;fr", (ENCODINGS, Axis("Accept-Language", ("en", "fr")))),
        # header-structure 3.3: inner-list = list-member *( OWS ";" OWS list-member ).
        (" \tAccept-Encoding \t; \tgzip;\tbr\t,Accept-Language ;en; fr ;ja \t ", (ENCODINGS, LANGUAGES)),
        # Variants 2: "Any list-member that is a token is interpreted as a string containing the same characters."
        ('"Accept-Encoding";"gzip";br', (ENCODINGS,)),
        ('Accept;"image/svg+xml";image/png', (Axis("Accept", ("image/svg+xml", "image/png")),)),
        (r'a;"b\"c\\d ;,";""', (Axis("a", ('b"c\\d ;,', "")),)),
        ("a;b_-.:%*/0", (Axis("a", ("b_-.:%*/0",)),)),
        # Variants 2: "Clients receiving an invalid field-name MUST NOT match it to any mechanism", and no more.
        ('"no field";b', (Axis("no field", ("b",)),)),
        ("a;b;b, a;b", (Axis("a", ("b", "b")), Axis("a", ("b",)))),
        # header-structure 3.8 and 3.9: strings of 1024 characters and tokens of 512 MUST be supported.
        (f'{"a" * 512};"{"b" * 1024}"', (Axis("a" * 512, ("b" * 1024,)),)),
    ],
)
def test_a_variants_value_is_a_list_of_lists_of_tokens_and_strings(value: str, axes: tuple[Axis, ...]) -> None:
    assert parse_variants(value) == axes
    assert parse_variants(write_variants(axes)) == axes


@pytest.mark.parametrize(
    "value",
    [
        # header-structure 4.2.4: "No structured data has been found; fail parsing", "If input_string is empty, fail".
        *("", " ", "\t", "a,", "a;b,", "a;b, ", "a;", "a; ", "a;b;", ",a", ";a", "a;;b", "a,,b", "a b", "a;b c"),
        # Variants 2: "If ... a list-member has the wrong type": numbers, byte sequences and Booleans.
        *("a;1", "a;-1", "a;1.5", "1;a", "a;*aGk=*", "a;?1", "a;*", "a;7z"),
        # header-structure 3.9: a token has none of these, a parameter and a dictionary are something else.
        *("a;b=c", "a=(b)", "a=b", "a;b+c", "a;!b", "a;b~", "a;_b", "a;'b'", "a;b@c"),
        # header-structure 4.2.8: "only DQUOTE and \ can be escaped", no character outside of 0x20 to 0x7E, a closing ".
        *('a;"', 'a;"b', 'a;"b\\"', 'a;"b\\', 'a;"\\b"', 'a;"b"c', 'a;"b""c"', 'a;"\t"', 'a;"\x7f"', 'a;"\n"'),
        # header-structure 4.2: "Convert input_bytes into an ASCII string; if conversion fails, fail parsing."
        *('a;"\u00e9"', "a;\u00e9", "a;b\u0661", "\u00a0a;b", "a;b\u3000", "a;b\n", "\na;b", "a;b\x00", "a;\ud800"),
    ],
)
def test_what_is_no_list_of_lists_is_none(value: str) -> None:
    assert parse_variants(value) is None
    assert parse_key(value) is None


def test_half_a_megabyte_of_anything_is_answered() -> None:
    size = 1 << 19
    for value in ('a;"' + "\\\\" * size, "a" + " " * size + "x", "a;" * size, "a," * size, '"' * size, "a;b;c," * size):
        assert parse_variants(value) is None
    assert parse_variants('a;"' + '\\"' * size + '"') == (Axis("a", ('"' * size,)),)
    assert parse_variants("a" + " " * size) == (Axis("a", ()),)


def test_the_documents_example_is_in_row_major_order() -> None:
    """3.3.1 of bundled-exchanges-01, both of its lists."""
    assert variant_keys([ENCODINGS, LANGUAGES]) == ["gzip;en", "gzip;fr", "gzip;ja", "br;en", "br;fr", "br;ja"]
    assert variant_keys([LANGUAGES, ENCODINGS]) == ["en;gzip", "en;br", "fr;gzip", "fr;br", "ja;gzip", "ja;br"]


def test_keys_are_counted_and_measured_without_making_them() -> None:
    assert MOST_KEYS == 10_000
    assert count_keys([ENCODINGS, LANGUAGES]) == 6
    assert measure_keys([ENCODINGS, LANGUAGES]) == len("gzip;engzip;frgzip;jabr;enbr;frbr;ja")
    many = parse_variants(", ".join(["a;b;c"] * 80_000))
    assert many is not None
    assert count_keys(many) == measure_keys(many) == 2**64 - 1
    assert count_keys([*many, Axis("a", ())]) == measure_keys([*many, Axis("a", ())]) == 0
    assert count_keys(parse_variants(", ".join(["a;b"] * 80_000)) or ()) == 1
    long = [Axis("a", tuple(map(str, range(MOST_KEYS)))), Axis("b", ("b" * 100_000,))]
    assert count_keys(long) == MOST_KEYS
    assert measure_keys(long) > 1_000_000_000 > MOST_KEY_TEXT


@pytest.mark.parametrize(
    ("text", "values", "written"),
    [
        ("gzip;ja", ("gzip", "ja"), "gzip;ja"),
        (" gzip ;\tja ", ("gzip", "ja"), "gzip;ja"),
        ('"gzip";"j\\"a"', ("gzip", 'j"a'), 'gzip;"j\\"a"'),
        # Variants 3: "the whitespace in the second header field value is included by the string parsing algorithm".
        ('"gzip ";fr', ("gzip ", "fr"), '"gzip ";fr'),
        ("text/html", ("text/html",), "text/html"),
        ('"image/svg+xml"', ("image/svg+xml",), '"image/svg+xml"'),
        ('"1";"";"*"', ("1", "", "*"), '"1";"";"*"'),
    ],
)
def test_a_key_is_written_in_one_form(text: str, values: tuple[str, ...], written: str) -> None:
    assert parse_key(text) == values
    assert write_key(values) == written


@pytest.mark.parametrize("text", ["gzip;fr, identity;fr", "gzip,fr", "gzip;fr,"])
def test_several_keys_are_not_one(text: str) -> None:
    assert parse_key(text) is None


@pytest.mark.parametrize("value", ["\u00e9", "a\n", "\x7f", "\ud800"])
def test_what_no_string_can_hold_is_refused_with_a_sentence(value: str) -> None:
    with pytest.raises(ConfigurationError, match="printable ASCII"):
        write_key([value])
    with pytest.raises(ConfigurationError, match="printable ASCII"):
        write_variants([Axis("a", (value,))])


def choose(variants: str, request: dict[str, str], keys: list[str] | None = None) -> str | None:
    axes = parse_variants(variants)
    assert axes is not None
    return select_key(axes, dict.fromkeys(variant_keys(axes) if keys is None else keys), request)


@pytest.mark.parametrize(
    ("request_headers", "key"),
    [
        ({"accept-encoding": "br", "accept-language": "fr"}, "br;fr"),
        ({"accept-encoding": "gzip;q=0.5, br", "accept-language": "ja;q=0.5, en"}, "br;en"),
        ({"Accept-Encoding": "gzip", "ACCEPT-LANGUAGE": "ja"}, "gzip;ja"),
        ({"accept-encoding": "gzip"}, "gzip;en"),
        ({"accept-encoding": "gzip", "accept-language": "de"}, "gzip;en"),
        # Without Accept-Encoding only identity is acceptable, and these axes have none of it.
        ({"accept-language": "fr"}, None),
        ({}, None),
        ({"accept-encoding": "zstd, identity"}, None),
    ],
)
def test_the_documents_example_is_chosen_from(request_headers: dict[str, str], key: str | None) -> None:
    assert choose(EXAMPLE, request_headers) == key


def test_the_first_axis_counts_most() -> None:
    """Variants 2: "a cache ... will honour the client's preferences for Accept-Encoding before ... Accept-Language"."""
    request = {"accept-encoding": "gzip, br;q=0.5", "accept-language": "fr, en;q=0.5"}
    keys = ["gzip;en", "br;fr"]
    assert choose("Accept-Encoding;gzip;br, Accept-Language;en;fr", request, keys) == "gzip;en"
    keys = ["en;gzip", "fr;br"]
    assert choose("Accept-Language;en;fr, Accept-Encoding;gzip;br", request, keys) == "fr;br"


def test_the_possible_keys_are_tried_in_their_order() -> None:
    """Variants 4.3: fr;gzip, fr;identity, en;gzip, en;identity."""
    request = {"accept-language": "fr;q=1.0, en;q=0.1", "accept-encoding": "gzip"}
    possible = ["fr;gzip", "fr;identity", "en;gzip", "en;identity"]
    for first, key in enumerate(possible):
        others = ["de;gzip", "fr;br", "en;br"]
        assert choose("Accept-Language;en;fr;de, Accept-Encoding;gzip;br", request, possible[first:] + others) == key
    assert choose("Accept-Language;en;fr;de, Accept-Encoding;gzip;br", request, ["de;gzip", "fr;br"]) is None


def test_a_variant_that_is_missing_is_not_replaced_by_one_that_is_not_accepted() -> None:
    """Variants 4.3.1: "prefers German; will not accept English"."""
    assert choose("Accept-Language;en;fr;de", {"accept-language": "de;q=1.0, es;q=0.8"}, ["fr", "en"]) is None


def test_variants_that_do_not_overlap_the_request_give_the_default() -> None:
    """Variants 4.3.2: "even though it's not in the set the client prefers"."""
    assert choose("Accept-Language;en;fr;de", {"accept-language": "es;q=1.0, ja;q=0.8"}) == "en"


def test_an_axis_that_no_mechanism_is_for_leaves_nothing_to_choose_by() -> None:
    request = {"accept-language": "en", "cookie": "a", "dpr": "b"}
    for name in ("Cookie", "DPR", "Accept-Languages", '"Accept Language"', '""'):
        assert choose(f"Accept-Language;en, {name};a;b", request) is None
        assert choose(f"Accept-Language;en, {name};a;b", request, ["en", "en;a"]) is None


def test_an_axis_without_values_makes_no_key() -> None:
    assert choose("Accept-Language", {}) is None
    assert choose("Accept", {"accept": "*/*"}) is None
    # Save for identity, which need not be listed.
    assert choose("Accept-Encoding", {}, ["identity"]) == "identity"


def test_field_names_are_compared_without_regard_to_case_and_their_values_combined() -> None:
    keys = ["en", "fr", "de"]
    for request in ({"Accept-Language": "de", "accept-language": "fr;q=0.1"}, {"ACCEPT-LANGUAGE": "fr;q=0.1,de"}):
        assert choose("aCCEPT-lANGUAGE;en;fr;de", request, keys) == "de"


class Tried(dict[str, None]):
    """Locations that remember which keys they were asked for."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__(dict.fromkeys(keys))
        self.keys_tried: list[str] = []

    def __contains__(self, key: object) -> bool:
        self.keys_tried.append(str(key))
        return super().__contains__(key)


def test_no_key_is_tried_twice_nor_more_of_them_than_there_are_locations() -> None:
    axes = [Axis("Accept-Encoding", ("br", "br", "gzip", "br")), Axis("Accept-Language", ("en", "en-GB", "en"))]
    request = {"accept-encoding": "br, BR;q=0.5, gzip, *", "accept-language": "*, en, en-GB"}
    possible = ["br;en", "br;en-GB", "gzip;en", "gzip;en-GB", "identity;en", "identity;en-GB"]
    locations = Tried([*"abcdefgh", "identity;en-GB"])
    assert select_key(axes, locations, request) == "identity;en-GB"
    assert locations.keys_tried == possible
    locations = Tried(["a", "b", "identity;en-GB"])
    assert select_key(axes, locations, request) == "identity;en-GB"
    assert locations.keys_tried == possible[:3]


def test_more_possible_keys_than_there_are_locations_are_not_all_made() -> None:
    """Thirty axes with an identity each that has no location: 2**30 possible keys, the last of which is there."""
    variants = ", ".join(["Accept-Encoding;gzip"] * 30)
    request = {"accept-encoding": "identity, gzip;q=0.5"}
    assert choose(variants, request) == ";".join(["gzip"] * 30)
    near = ";".join(["gzip"] * 29 + ["identity"])
    last = ";".join(["identity"] * 28 + ["gzip"] * 2)
    assert choose(variants, request, [";".join(["gzip"] * 30), "gzip", "?", near, last]) == last
    assert choose(variants, request, ["gzip", ";".join(["br"] * 30), "\x00"]) is None
    assert choose(variants, request, []) is None
