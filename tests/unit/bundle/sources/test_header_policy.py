import pytest

from headgate.bundle.sources.selection import (
    essence,
    filter_headers,
    with_content_encoding,
    with_content_type,
    with_utf8_charset,
)


def test_what_describes_the_response_is_kept() -> None:
    fields = [
        ("Content-Type", "text/html"),
        ("ETag", '"a"'),
        ("Cache-Control", "max-age=60"),
        ("Date", "Fri, 01 Oct 2021 12:41:40 GMT"),
        ("Content-Security-Policy", "default-src 'self'"),
        ("Access-Control-Allow-Origin", "*"),
        ("Location", "/x"),
        ("Vary", "Accept-Language"),
    ]
    assert filter_headers(fields) == {name.lower(): value for name, value in fields}


@pytest.mark.parametrize(
    "name",
    [
        "Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Trailer", "Upgrade", "Alt-Svc",
        "Set-Cookie", "set-cookie2", "WWW-Authenticate", "Clear-Site-Data", "Strict-Transport-Security",
        "Public-Key-Pins", "Age", "Variants", "Variant-Key", ":status", "", "no token", "n\u00e4me", "na\u00efve\u212a",
    ],
)  # fmt: skip
def test_what_is_of_a_connection_a_person_or_a_host_is_dropped(name: str) -> None:
    assert filter_headers([(name, "x"), ("content-type", "text/css")]) == {"content-type": "text/css"}


def test_what_the_connection_field_names_is_of_the_connection() -> None:
    assert filter_headers([("X-Hop", "1"), ("Connection", "close, x-hop"), ("x-end", "2")]) == {"x-end": "2"}


def test_values_of_one_name_are_joined_but_for_fields_with_one_value() -> None:
    fields = [("Vary", "a"), ("vary", "b"), ("Content-Type", "text/html"), ("content-type", "text/css")]
    assert filter_headers(fields) == {"vary": "a, b", "content-type": "text/css"}


@pytest.mark.parametrize(
    ("values", "joined"), [(["", ""], ""), (["", "a"], "a"), (["a", ""], "a"), (["a", "", "b"], "a, b")]
)
def test_an_empty_value_adds_nothing(values: list[str], joined: str) -> None:
    assert filter_headers([("x", value) for value in values]) == {"x": joined}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("  a b \t", "a b"),
        ("a\nb", "a, b"),
        ("a\r\n b\r\n", "a, b"),
        ("a\x00b\x1fc\x7f", "a b c"),
        ("a\tb", "a\tb"),
        ("caf\xe9", "caf\xe9"),
        ("\u2013", "\xe2\x80\x93"),
        ("", ""),
    ],
)
def test_values_are_the_bytes_that_are_sent_without_controls(value: str, written: str) -> None:
    assert filter_headers([("x", value)]) == {"x": written}


@pytest.mark.parametrize(
    ("own", "otherwise", "found"),
    [
        ("text/html; charset=x", "image/png", "text/html; charset=x"),
        ("", "image/png", "image/png"),
        ("nonsense", "x-unknown", "application/octet-stream"),
        ("", "", "application/octet-stream"),
        ("text/html\ufffd", "text/css", "text/css"),
    ],
)
def test_every_response_has_a_type(own: str, otherwise: str, found: str) -> None:
    assert with_content_type({"content-type": own} if own else {}, otherwise)["content-type"] == found


def test_another_coding_is_alike_and_not_the_same() -> None:
    headers = {
        "etag": '"a"',
        "digest": "x",
        "content-md5": "y",
        "repr-digest": "z",
        "content-encoding": "gzip",
        "a": "b",
    }
    assert with_content_encoding(headers, None) == {"etag": 'W/"a"', "a": "b"}
    assert with_content_encoding(headers, "br") == {"etag": 'W/"a"', "a": "b", "content-encoding": "br"}
    assert with_content_encoding({"etag": 'W/"a"'}, None) == {"etag": 'W/"a"'}


@pytest.mark.parametrize(
    ("content_type", "written"),
    [
        ("text/html", "text/html; charset=utf-8"),
        ("Text/HTML; Charset=windows-1251", "Text/HTML; charset=utf-8"),
        ("text/plain; format=flowed;charset=x; delsp=yes", "text/plain; format=flowed; delsp=yes; charset=utf-8"),
        ("application/javascript", "application/javascript; charset=utf-8"),
        ("image/svg+xml", "image/svg+xml; charset=utf-8"),
        ("application/xml;", "application/xml; charset=utf-8"),
        ("application/json", "application/json"),
        ("application/ld+json; charset=x", "application/ld+json; charset=x"),
        ("image/png", "image/png"),
    ],
)
def test_text_in_utf_8_says_so(content_type: str, written: str) -> None:
    assert with_utf8_charset(content_type) == written


def test_the_essence_is_the_type_alone() -> None:
    assert essence(" Text/HTML ; charset=x") == "text/html"
