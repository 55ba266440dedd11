"""Appendix A of draft-ietf-httpbis-variants-05: how each mechanism sorts the values of an axis."""

import pytest

from headgate.bundle.negotiation import MECHANISMS


def sort(field_name: str, field: str | None, values: str) -> list[str]:
    return MECHANISMS[field_name](field)(values.split())


@pytest.mark.parametrize(
    ("field", "values", "expected"),
    [
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
        (
            "text/*;q=0.3, text/html;q=0.7, */*;q=0.5",
            "text/plain image/png text/html",
            "text/html image/png text/plain",
        ),
        ("text/*, text/html;q=0", "text/html text/plain", "text/plain"),
        ("*/*, text/*;q=0", "text/html image/png", "image/png"),
        # "this algorithm explicitly ignores extension parameters on media types"
        ("text/html;charset=utf-8;q=0.5, text/plain", "text/html text/plain", "text/plain text/html"),
        ("text/html", "text/plain text/html;charset=utf-8", "text/html;charset=utf-8"),
        # Members that cannot be read count as absent, weights as 1.
        (",;q=1,, text, text/html;q=x", "image/png text/html", "text/html"),
    ],
)
def test_accept(field: str | None, values: str, expected: str) -> None:
    assert sort("accept", field, values) == expected.split()


@pytest.mark.parametrize(
    ("field", "values", "expected"),
    [
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
    ],
)
def test_accept_encoding(field: str | None, values: str, expected: str) -> None:
    found = sort("accept-encoding", field, values)
    assert found == expected.split()


@pytest.mark.parametrize(
    ("field", "values", "expected"),
    [
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
    ],
)
def test_accept_language(field: str | None, values: str, expected: str) -> None:
    assert sort("accept-language", field, values) == expected.split()


@pytest.mark.parametrize("name", MECHANISMS)
def test_unknown_certificates_in_a_chain_are_accepted(name: str) -> None:
    """As many members as a field can have, against as many values as an axis can, and tags of very many subtags."""
    ranges = ",".join(f"a{'-a' * (place % 50)}{place}" for place in range(20_000))
    deep = "-".join(["a"] * 100_000)
    values = [deep, *(f"a{'-a' * (place % 50)}-{place}" for place in range(10_000))]
    assert len(MECHANISMS[name](f"{deep},{ranges},*/*,*;q=0.5")(values)) in (len(values), len(values) + 1)
    for text in ("\ud800", "\u00e9;q=\u0661", "\x00", ";;;===,,,", "a;q=1e9", "a;q=" + "9" * 100_000):
        assert sort(name, text, "a b")
