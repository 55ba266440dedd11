"""The short way of `parse_url` says what the WHATWG's parser says, however near to normal form a text is."""

import can_ada
import pytest
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from headgate.http.url import (
    has_credentials,
    has_fragment,
    is_normal,
    normal,
    parse_url,
    resolve,
    without_fragment,
)

HARMLESS = {
    "scheme": ["http://", "https://"],
    "label": ["a", "www", "example", "com", "a-b", "a--b", "ab--c", "a-", "xn", "xn1", "x0"],
    "port": ["", "", "", ":8080", ":1", ":81", ":8443"],
    "segment": ["", "a", "B.c", "a..", "a.", "a%2e", "%41", "%D0%BC", "a%2E.b", "%", "%%2e", "c:", "!$&'()*+,;=@_~"],
    "tail": ["", "", "", "?", "?a=b", "?/../%2e?", "?%", "?a@b:c"],
}
# fmt: off
SPOILING = {
    "scheme": ["HTTPS://", "https:", "https:/", "https:///", "http:\\\\", "ws://", "file://", "foo://", "urn:", "data:",
               "http://u@", "https://:p@", "foo://u:p@", "http://@"],
    "label": ["", "A", "3m", "-a", "a b", "a_b", "é", "ß", "İ", "。", "\u00ad", "a" * 64, "%2e", "a%41", "%", "[::1]",
              "xn-", "xn--", "xn--a", "xn--mnchen-3ya", "XN--A", "1", "0", "08", "0x", "0x1f", "0xfg"],
    "port": [":", ":0", ":80", ":443", ":080", ":0443", ":65535", ":65536", ":99999", ":-1", ":8 0", ":x"],
    "segment": [".", "..", "...", ".a", "..a", "%2e", "%2E", ".%2e", "%2e.", "%2E%2e", "%2", "%2ea", "c|", "^", "[]"],
    "tail": ["#", "?#", "#a", "?\\", "?é", "?a b", "?'", '?"<>`{|}^[]', " ", "\t", "?a\nb", "\x00", "\\", "/\\..\\a"],
}
# fmt: on
PUT_ANYWHERE = st.text(max_size=2) | st.sampled_from(
    ["\t", "\n", " ", "\\", "/", "/.", "%2e", "%2E.", "%00", "@", ":", "\ud800", "\ufffd", ".", "0", "xn--"]
)


@st.composite
def near_normal(draw: st.DrawFn) -> str:
    """A URL in normal form, or one with one thing that is not, or that was put into it once or many times."""
    spoilt = draw(st.sampled_from(["nothing", "anywhere", *SPOILING]))

    def one(part: str) -> str:
        return draw(st.sampled_from((SPOILING if part == spoilt else HARMLESS)[part]))

    def several(part: str) -> list[str]:
        found = draw(st.lists(st.sampled_from(HARMLESS[part]), max_size=3))
        found.insert(draw(st.integers(0, len(found))), one(part))
        return found

    url = f"{one('scheme')}{'.'.join(several('label'))}{one('port')}/{'/'.join(several('segment'))}{one('tail')}"
    if spoilt == "anywhere":
        at = draw(st.integers(0, len(url)))
        url = url[:at] + draw(PUT_ANYWHERE) * draw(st.sampled_from([1, 1, 1, 5000])) + url[at:]
    return url


def parser_says(text: str) -> str | None:
    try:
        return can_ada.parse(text).href
    except (ValueError, TypeError):
        return None


@given(near_normal() | st.text())
@example("https://a.1/")
@example("https://a.0xa/")
@example("https://xn--a/")
@example("https://a/%2e")
@example("https://a/b/%2E%2e/c")
@example("https://a/?'")
@example("https://a:443/")
@example("http://a:443/")
@example("https://a")
@example("https://a/\n")
@example("https://a/#")
@example("https://" + "a." * 300 + "a/")
def test_the_short_way_says_what_the_parser_says(text: str) -> None:
    url = parse_url(text)
    event("refused" if url is None else "as it is" if url is text else "another text" if url != text else "equal")
    assert url == parser_says(text)
    if is_normal(text):
        assert url is text
        assert not has_fragment(text)
        assert not has_credentials(text)
        parsed = can_ada.parse(text)
        assert normal(text).groups() == (parsed.origin + parsed.pathname, parsed.origin, parsed.pathname)


@pytest.mark.parametrize("around", ["https://a{}b/", "https://{}b/", "https://a/{}", "https://a/b{}c", "https://a/?{}"])
def test_every_character_up_to_a_byte_is_left_alone_only_where_the_parser_leaves_it(around: str) -> None:
    for character in map(chr, range(256)):
        text = around.format(character)
        assert parse_url(text) == parser_says(text)


@given(near_normal(), near_normal())
def test_resolving_says_what_the_parser_says(text: str, base: str) -> None:
    absolute = parse_url(base)
    assume(absolute is not None)
    for relative in (text, text[text.find("/") :], text[text.rfind("/") :], text[text.rfind("/") + 1 :]):
        try:
            expected = (can_ada.parse(absolute) + relative).href
        except (ValueError, TypeError):
            expected = None
        assert resolve(relative, absolute) == expected


@given(near_normal(), st.text(max_size=3))
def test_what_is_said_of_a_url_is_what_the_parser_says_of_it(text: str, fragment: str) -> None:
    for url in map(parse_url, (text, f"{text}#{fragment}")):
        if url is not None:
            parsed = can_ada.parse(url)
            assert parsed.href == url
            assert has_fragment(url) == parsed.has_hash()
            assert has_credentials(url) == parsed.has_credentials()
            rest = without_fragment(url)
            assert parse_url(rest) == rest
            assert not has_fragment(rest)
            assert url == rest or url.startswith(rest)
