"""The syntax of Variants and variant keys, and the choice among them, in the sentences of their drafts.

"Variants" is draft-ietf-httpbis-variants-05; "header-structure" is draft-ietf-httpbis-header-structure-10.
"""

import pytest

from headgate.bundle.variants import (
    MAX_KEY_TEXT,
    MAX_KEYS,
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
def test_other_than_lists_of_lists_are_invalid(value: str) -> None:
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
    keys = " ".join(variant_keys([ENCODINGS.values, LANGUAGES.values]))
    assert keys == "gzip;en gzip;fr gzip;ja br;en br;fr br;ja"
    keys = " ".join(variant_keys([LANGUAGES.values, ENCODINGS.values]))
    assert keys == "en;gzip en;br fr;gzip fr;br ja;gzip ja;br"


def test_keys_are_counted_and_measured_without_making_them() -> None:
    assert MAX_KEYS == 10_000
    assert count_keys([ENCODINGS, LANGUAGES]) == 6
    assert measure_keys([ENCODINGS, LANGUAGES]) == len("gzip;engzip;frgzip;jabr;enbr;frbr;ja")
    many = parse_variants(", ".join(["a;b;c"] * 80_000))
    assert many is not None
    assert count_keys(many) == measure_keys(many) == 2**64 - 1
    assert count_keys([*many, Axis("a", ())]) == measure_keys([*many, Axis("a", ())]) == 0
    assert count_keys(parse_variants(", ".join(["a;b"] * 80_000)) or ()) == 1
    long = [Axis("a", tuple(map(str, range(MAX_KEYS)))), Axis("b", ("b" * 100_000,))]
    assert count_keys(long) == MAX_KEYS
    assert measure_keys(long) > 1_000_000_000 > MAX_KEY_TEXT


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


def choose(variants: str, request: dict[str, str]) -> str | None:
    axes = parse_variants(variants)
    assert axes is not None
    return select_key(axes, request)


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


def test_each_axis_is_chosen_by_its_own_field() -> None:
    """Variants 4.1: the first of the Possible Keys has the first of each axis's sorted values."""
    request = {"accept-language": "fr;q=1.0, en;q=0.1", "accept-encoding": "gzip"}
    assert choose("Accept-Language;en;fr;de, Accept-Encoding;gzip;br", request) == "fr;gzip"
    assert choose("Accept-Encoding;gzip;br, Accept-Language;en;fr;de", request) == "gzip;fr"


def test_identity_is_chosen_only_where_it_is_a_value() -> None:
    """Variants A.2 step 4: identity is sorted in "if it is not present", also where there is no such response."""
    assert choose("Accept-Encoding;gzip;identity", {}) == "identity"
    assert choose("Accept-Encoding;gzip", {}) is None
    assert choose("Accept-Encoding;gzip", {"accept-encoding": "identity, gzip;q=0.5"}) == "gzip"


def test_variants_that_do_not_overlap_the_request_give_the_default() -> None:
    """Variants 4.3.2: "even though it's not in the set the client prefers"."""
    assert choose("Accept-Language;en;fr;de", {"accept-language": "es;q=1.0, ja;q=0.8"}) == "en"


def test_an_axis_that_no_mechanism_is_for_leaves_nothing_to_choose_by() -> None:
    request = {"accept-language": "en", "cookie": "a", "dpr": "b"}
    for name in ("Cookie", "DPR", "Accept-Languages", '"Accept Language"', '""'):
        assert choose(f"Accept-Language;en, {name};a;b", request) is None


def test_an_axis_without_values_makes_no_key() -> None:
    assert choose("Accept-Language", {}) is None
    assert choose("Accept", {"accept": "*/*"}) is None
    assert choose("Accept-Encoding", {}) is None


def test_field_names_are_compared_without_regard_to_case_and_their_values_combined() -> None:
    for request in ({"Accept-Language": "de", "accept-language": "fr;q=0.1"}, {"ACCEPT-LANGUAGE": "fr;q=0.1,de"}):
        assert choose("aCCEPT-lANGUAGE;en;fr;de", request) == "de"
