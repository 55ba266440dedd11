"""`parse_url` returns what the WHATWG's parser returns, in particular for texts that are almost in normal form."""

import can_ada
import pytest
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from headgate.http.url import has_credentials, has_fragment, normal, parse_url, resolve, without_fragment

NORMAL = {
    "scheme": ["http://", "https://"],
    "label": ["a", "www", "example", "com", "a-b", "a--b", "ab--c", "a-", "xn", "xn1", "x0"],
    "port": ["", "", "", ":8080", ":1", ":81", ":8443"],
    "segment": ["", "a", "B.c", "a..", "a.", "a%2e", "%41", "%D0%BC", "a%2E.b", "%", "%%2e", "c:", "!$&'()*+,;=@_~"],
    "tail": ["", "", "", "?", "?a=b", "?/../%2e?", "?%", "?a@b:c"],
}
# fmt: off
ABNORMAL = {
    "scheme": ["HTTPS://", "https:", "https:/", "https:///", "http:\\\\", "ws://", "file://", "foo://", "urn:", "data:",
               "http://u@", "https://:p@", "foo://u:p@", "http://@"],
    "label": ["", "A", "3m", "-a", "a b", "a_b", "é", "ß", "İ", "。", "\u00ad", "a" * 64, "%2e", "a%41", "%", "[::1]",
              "xn-", "xn--", "xn--a", "xn--mnchen-3ya", "XN--A", "1", "0", "08", "0x", "0x1f", "0xfg"],
    "port": [":", ":0", ":80", ":443", ":080", ":0443", ":65535", ":65536", ":99999", ":-1", ":8 0", ":x"],
    "segment": [".", "..", "...", ".a", "..a", "%2e", "%2E", ".%2e", "%2e.", "%2E%2e", "%2", "%2ea", "c|", "^", "[]"],
    "tail": ["#", "?#", "#a", "?\\", "?é", "?a b", "?'", '?"<>`{|}^[]', " ", "\t", "?a\nb", "\x00", "\\", "/\\..\\a"],
}
# fmt: on
INSERTED = st.text(max_size=2) | st.sampled_from(
    ["\t", "\n", " ", "\\", "/", "/.", "%2e", "%2E.", "%00", "@", ":", "\ud800", "\ufffd", ".", "0", "xn--"]
)


@st.composite
def near_normal(draw: st.DrawFn) -> str:
    """Return a URL in normal form, one with one abnormal part, or one with text inserted once or many times."""
    abnormal = draw(st.sampled_from(["nothing", "anywhere", *ABNORMAL]))

    def one(part: str) -> str:
        return draw(st.sampled_from((ABNORMAL if part == abnormal else NORMAL)[part]))

    def several(part: str) -> list[str]:
        found = draw(st.lists(st.sampled_from(NORMAL[part]), max_size=3))
        found.insert(draw(st.integers(0, len(found))), one(part))
        return found

    url = f"{one('scheme')}{'.'.join(several('label'))}{one('port')}/{'/'.join(several('segment'))}{one('tail')}"
    if abnormal == "anywhere":
        at = draw(st.integers(0, len(url)))
        url = url[:at] + draw(INSERTED) * draw(st.sampled_from([1, 1, 1, 5000])) + url[at:]
    return url


def parse_with_can_ada(text: str) -> str | None:
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
def test_parse_url_equals_the_parser(text: str) -> None:
    url = parse_url(text)
    event("refused" if url is None else "as it is" if url is text else "another text" if url != text else "equal")
    assert url == parse_with_can_ada(text)
    if normal(text):
        assert url is text
        assert not has_fragment(text)
        assert not has_credentials(text)
        parsed = can_ada.parse(text)
        assert normal(text).groups() == (parsed.origin + parsed.pathname, parsed.origin, parsed.pathname)


@pytest.mark.parametrize("around", ["https://a{}b/", "https://{}b/", "https://a/{}", "https://a/b{}c", "https://a/?{}"])
def test_every_latin_1_character_at_every_place_equals_the_parser(around: str) -> None:
    for character in map(chr, range(256)):
        text = around.format(character)
        assert parse_url(text) == parse_with_can_ada(text)


@given(near_normal(), near_normal())
def test_resolve_equals_the_parser(text: str, base: str) -> None:
    absolute = parse_url(base)
    assume(absolute is not None)
    for relative in (text, text[text.find("/") :], text[text.rfind("/") :], text[text.rfind("/") + 1 :]):
        try:
            expected = (can_ada.parse(absolute) + relative).href
        except (ValueError, TypeError):
            expected = None
        assert resolve(relative, absolute) == expected


@given(near_normal(), st.text(max_size=3))
def test_fragment_and_credentials_equal_the_parser(text: str, fragment: str) -> None:
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
