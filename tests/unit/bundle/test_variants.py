"""headgate.bundle.variants: the sentences of draft-ietf-httpbis-variants-05 and header-structure-10."""

import pytest

from headgate.bundle.variants import (
    MECHANISMS,
    Axis,
    excess_of_keys,
    parse_key,
    parse_variants,
    select_key,
    variant_keys,
    write_key,
)
from headgate.errors import ConfigurationError
from tests.quotes import quotes

ENCODINGS = Axis("Accept-Encoding", ("gzip", "br"))
LANGUAGES = Axis("Accept-Language", ("en", "fr", "ja"))
EXAMPLE = "Accept-Encoding;gzip;br, Accept-Language;en;fr;ja"


def test_variants_are_lists_of_lists_of_tokens_and_strings() -> None:
    for value, axes in (
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
    ):
        assert parse_variants(value) == axes, value


INVALID = [
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
]


def test_other_than_lists_of_lists_are_invalid() -> None:
    wrong = [value for value in INVALID if parse_variants(value) is not None or parse_key(value) is not None]
    assert wrong == []


def test_long_values_are_parsed_in_linear_time() -> None:
    size = 1 << 17
    for value in ('a;"' + "\\\\" * size, "a" + " " * size + "x", "a;" * size, "a," * size, '"' * size, "a;b;c," * size):
        assert parse_variants(value) is None
    assert parse_variants('a;"' + '\\"' * size + '"') == (Axis("a", ('"' * size,)),)
    assert parse_variants("a" + " " * size) == (Axis("a", ()),)


@quotes(
    "bundled-exchanges-01 3.3.1",
    'Let "variantKeys" be the Cartesian product of the lists of available-values for each '
    "variant-axis in lexicographic (row-major) order.",
)
def test_keys_of_the_drafts_example_are_in_row_major_order() -> None:
    keys = " ".join(variant_keys([ENCODINGS.values, LANGUAGES.values]))
    assert keys == "gzip;en gzip;fr gzip;ja br;en br;fr br;ja"
    keys = " ".join(variant_keys([LANGUAGES.values, ENCODINGS.values]))
    assert keys == "en;gzip en;br fr;gzip fr;br ja;gzip ja;br"


def test_keys_are_counted_and_measured_without_making_them() -> None:
    for lengths, fault in (
        ([[1] * 1_000], ""),
        ([[1] * 1_001], "1001 variant keys; the limit is 1000"),
        ([[1] * 2] * 80_000, f"{2**64 - 1} variant keys; the limit is 1000"),
        ([[1] * 2] * 80_000 + [[]], ""),  # no keys at all
        ([[1] * 10, [10], [10]] * 3, ""),
        ([[1], [(1 << 17) - 2]], ""),
        ([[1], [(1 << 17) - 1]], f"variant keys of {(1 << 17) + 1} characters; the limit is {1 << 17}"),
        ([[1] * 1_000, [100_000]], "variant keys of 100002000 characters; the limit is 131072"),
    ):
        assert excess_of_keys([Axis("a", tuple("b" * length for length in values)) for values in lengths]) == fault, (
            lengths
        )


def test_keys_have_one_written_form() -> None:
    for text, values, written in (
        ("gzip;ja", ("gzip", "ja"), "gzip;ja"),
        (" gzip ;\tja ", ("gzip", "ja"), "gzip;ja"),
        ('"gzip";"j\\"a"', ("gzip", 'j"a'), 'gzip;"j\\"a"'),
        # Variants 3: "the whitespace in the second header field value is included by the string parsing algorithm".
        ('"gzip ";fr', ("gzip ", "fr"), '"gzip ";fr'),
        ("text/html", ("text/html",), "text/html"),
        ('"image/svg+xml"', ("image/svg+xml",), '"image/svg+xml"'),
        ('"1";"";"*"', ("1", "", "*"), '"1";"";"*"'),
    ):
        assert parse_key(text) == values, text
        assert write_key(values) == written, text


@pytest.mark.parametrize("text", ["gzip;fr, identity;fr", "gzip,fr", "gzip;fr,"])
def test_several_keys_are_invalid(text: str) -> None:
    assert parse_key(text) is None


@pytest.mark.parametrize("value", ["\u00e9", "a\n", "\x7f", "\ud800"])
def test_values_other_than_printable_ascii_are_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match="printable ASCII"):
        write_key([value])


def choose(variants: str, request: dict[str, str]) -> str | None:
    axes = parse_variants(variants)
    assert axes is not None
    return select_key(axes, request.items())


def test_selection_in_the_drafts_example() -> None:
    for request_headers, key in (
        ({"accept-encoding": "br", "accept-language": "fr"}, "br;fr"),
        ({"accept-encoding": "gzip;q=0.5, br", "accept-language": "ja;q=0.5, en"}, "br;en"),
        ({"Accept-Encoding": "gzip", "ACCEPT-LANGUAGE": "ja"}, "gzip;ja"),
        ({"accept-encoding": "gzip"}, "gzip;en"),
        ({"accept-encoding": "gzip", "accept-language": "de"}, "gzip;en"),
        # Without Accept-Encoding only identity is acceptable, and these axes have none of it.
        ({"accept-language": "fr"}, None),
        ({}, None),
        ({"accept-encoding": "zstd, identity"}, None),
    ):
        assert choose(EXAMPLE, request_headers) == key, request_headers


def test_each_axis_is_selected_by_its_field() -> None:
    """Variants 4.1: the first of the Possible Keys has the first of each axis's sorted values."""
    request = {"accept-language": "fr;q=1.0, en;q=0.1", "accept-encoding": "gzip"}
    assert choose("Accept-Language;en;fr;de, Accept-Encoding;gzip;br", request) == "fr;gzip"
    assert choose("Accept-Encoding;gzip;br, Accept-Language;en;fr;de", request) == "gzip;fr"


def test_identity_is_selected_only_if_it_is_a_value() -> None:
    """Variants A.2 step 4: identity is sorted in "if it is not present", also where there is no such response."""
    assert choose("Accept-Encoding;gzip;identity", {}) == "identity"
    assert choose("Accept-Encoding;gzip", {}) is None
    assert choose("Accept-Encoding;gzip", {"accept-encoding": "identity, gzip;q=0.5"}) == "gzip"


def test_unknown_axes_have_no_selection() -> None:
    request = {"accept-language": "en", "cookie": "a", "dpr": "b"}
    for name in ("Cookie", "DPR", "Accept-Languages", '"Accept Language"', '""'):
        assert choose(f"Accept-Language;en, {name};a;b", request) is None


def test_fields_of_one_name_in_any_case_are_combined() -> None:
    for request in ({"Accept-Language": "de", "accept-language": "fr;q=0.1"}, {"ACCEPT-LANGUAGE": "fr;q=0.1,de"}):
        assert choose("aCCEPT-lANGUAGE;en;fr;de", request) == "de"


def sort(field_name: str, field: str | None, values: str) -> list[str]:
    return MECHANISMS[field_name](field)(values.split())


def wrong_rows(field_name: str, rows: list[tuple[str | None, str, str]]) -> list[tuple[str | None, str, list[str]]]:
    """Return the rows that are sorted otherwise, with the result."""
    found = [(field, values, expected, sort(field_name, field, values)) for field, values, expected in rows]
    return [(field, values, result) for field, values, expected, result in found if result != expected.split()]


ACCEPT_ROWS = [
    # Step 4: "the first available-value [is] the default when none of the client's preferences are available".
    (None, "text/html image/png", "text/html"),
    ("", "text/html image/png", "text/html"),
    ("audio/*", "text/html image/png", "text/html"),
    ("text/html;q=0", "text/html image/png", "text/html"),
    (None, "", ""),
    ("*/*", "", ""),
    # Step 2: "ordered by their weight, highest to lowest".
    ("image/png;q=0.5, image/webp", "image/png image/webp", "image/webp image/png"),
    ("image/png, image/webp", "image/webp image/png", "image/png image/webp"),
    ("image/png;q=0.501, image/webp;q=0.5", "image/webp image/png", "image/png image/webp"),
    # Step 2: those with a weight of 0 are omitted.
    ("image/png;q=0, image/webp;q=0.000, image/gif", "image/png image/webp image/gif", "image/gif"),
    # Step 3.1: media ranges, "which is case-insensitive".
    ("IMAGE/*", "text/html image/png Image/WebP", "image/png Image/WebP"),
    ("*/*", "text/html image/png", "text/html image/png"),
    ("image/avif,image/webp,*/*;q=0.8", "image/png image/webp image/avif", "image/avif image/webp image/png"),
    # "preserving the precedence order implied by the media ranges' specificity"
    ("*/*, text/*, text/html", "image/png text/plain text/html", "text/html text/plain image/png"),
    ("text/*, text/html;q=0.5", "text/html text/plain", "text/plain text/html"),
    ("text/*;q=0.3, text/html;q=0.7, */*;q=0.5", "text/plain image/png text/html", "text/html image/png text/plain"),
    ("text/*, text/html;q=0", "text/html text/plain", "text/plain"),
    ("*/*, text/*;q=0", "text/html image/png", "image/png"),
    # "this algorithm explicitly ignores extension parameters on media types"
    ("text/html;charset=utf-8;q=0.5, text/plain", "text/html text/plain", "text/plain text/html"),
    ("text/html", "text/plain text/html;charset=utf-8", "text/html;charset=utf-8"),
    # Members that cannot be read count as absent, weights as 1.
    (",;q=1,, text, text/html;q=x", "image/png text/html", "text/html"),
]


def test_accept_sorts_media_types() -> None:
    assert wrong_rows("accept", ACCEPT_ROWS) == []


ACCEPT_ENCODING_ROWS = [
    # Step 3: "If identity is not a member of preferred-codings, append identity"; step 4: "to available-values".
    (None, "gzip br", "identity"),
    ("", "gzip br", "identity"),
    (None, "gzip identity br", "identity"),
    ("gzip", "gzip br", "gzip identity"),
    ("zstd", "gzip br", "identity"),
    ("gzip", "", "identity"),
    # Step 2: by weight, and in the field's order.
    ("gzip;q=0.5, br", "gzip br", "br gzip identity"),
    ("br, gzip", "gzip br", "br gzip identity"),
    ("gzip;q=0.9, identity, br;q=0.95", "gzip br", "identity br gzip"),
    ("identity;q=0.5, gzip;q=0.1", "gzip", "identity gzip"),
    ("gzip;q=0, br;q=0.001", "gzip br", "br identity"),
    # Step 5.1: "case-insensitive, character-for-character", and the value as the axis writes it.
    ("GZIP, x-gzip", "Gzip", "Gzip identity"),
    ("gzip", "IDENTITY gzip", "gzip IDENTITY"),
    # By the letter of step 3 a refused identity is appended: it comes last, rather than nothing.
    ("identity;q=0", "gzip br", "identity"),
    ("gzip, identity;q=0", "identity gzip", "gzip identity"),
    ("*;q=0", "gzip br", "identity"),
    # RFC 9110, 12.5.3: "*" matches any available content coding not explicitly listed in the field.
    ("*", "gzip br", "gzip br identity"),
    ("*;q=0.5, br", "zstd gzip br", "br zstd gzip identity"),
    ("gzip;q=0, *", "gzip br", "br identity"),
    ("*, gzip;q=0.5", "gzip br", "br gzip identity"),
    ("br, *;q=0", "gzip br", "br identity"),
    ("*", "identity gzip", "identity gzip identity"),
]


def test_accept_encoding_sorts_codings() -> None:
    assert wrong_rows("accept-encoding", ACCEPT_ENCODING_ROWS) == []


ACCEPT_LANGUAGE_ROWS = [
    # Step 4: the first available-value is the default.
    (None, "en fr", "en"),
    ("", "en fr", "en"),
    ("de", "en fr", "en"),
    ("en;q=0", "en fr", "en"),
    (None, "", ""),
    ("*", "", ""),
    # Step 2: by weight, and in the field's order.
    ("fr;q=1.0, en;q=0.1", "en fr de", "fr en"),
    ("fr, en", "en fr", "fr en"),
    ("fr-CH, fr;q=0.9, en;q=0.8, de;q=0.7, *;q=0.5", "ja de en fr", "fr en de ja"),
    # Step 3.1, RFC 4647 3.3.1: "exactly equals the tag, or ... exactly equals a prefix of the tag such that the
    # first character following the prefix is -".
    ("en", "fr en-GB en", "en-GB en"),
    ("EN-gb", "en en-GB en-GB-oxendict", "en-GB en-GB-oxendict"),
    ("en-GB", "fr en", "fr"),
    ("e", "fr en", "fr"),
    ("de-de", "de-DE-1996 de-Deva de-Latn-DE", "de-DE-1996"),
    # "The special range * in a language priority list matches any tag."
    ("*", "en fr", "en fr"),
    ("*;q=0.1, fr", "en fr", "fr en"),
    ("en, en-US;q=0.5", "en-US en-GB", "en-US en-GB"),
    # What a longer range refuses, a shorter one does not bring back, nor the other way round.
    ("*, de;q=0", "de en", "en"),
    ("en, en-US;q=0", "en-US en-GB", "en-GB"),
    ("en;q=0, en-US", "en-GB en-US", "en-US"),
    ("fr, *;q=0", "en fr", "fr"),
    ("*;q=0", "en fr", "en"),
    ("en-*", "fr en-GB", "fr"),
    ("en", "fr x-en x-x-en", "fr"),
    ("-, en-, --", "en en--a -", "- en--a"),
]


def test_accept_language_sorts_languages() -> None:
    assert wrong_rows("accept-language", ACCEPT_LANGUAGE_ROWS) == []


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_longest_fields_and_values_are_sorted(name: str) -> None:
    """As many members as a field can have, against as many values as an axis can, and tags of very many subtags."""
    ranges = ",".join(f"a{'-a' * (place % 50)}{place}" for place in range(20_000))
    deep = "-".join(["a"] * 100_000)
    values = [deep, *(f"a{'-a' * (place % 50)}-{place}" for place in range(10_000))]
    assert len(MECHANISMS[name](f"{deep},{ranges},*/*,*;q=0.5")(values)) in (len(values), len(values) + 1)
    for text in ("\ud800", "\u00e9;q=\u0661", "\x00", ";;;===,,,", "a;q=1e9", "a;q=" + "9" * 100_000):
        assert sort(name, text, "a b")
