import pytest

from headgate.bundle.model import Exchange
from headgate.bundle.sources.selection import (
    SkipExchange,
    SkipReport,
    as_complete_response,
    check_status,
    filter_headers,
    keep_latest,
    normalize_http_url,
    with_content_type,
    with_utf8_charset,
    without_content_encoding,
)


def answer(url: str, status: int, payload: bytes = b"") -> Exchange:
    return Exchange(url, status, {}, payload)


@pytest.mark.parametrize(
    ("statuses", "stays"),
    [([200, 200], 1), ([200, 503], 0), ([503, 200], 1), ([404, 410], 1), ([200, 301, 204, 500], 2)],
)
def test_last_success_of_a_url_is_kept_or_else_the_last(statuses: list[int], stays: int) -> None:
    left_out = SkipReport()
    selected: dict[str, Exchange] = {}
    answers = [answer("https://a/", status, bytes([number])) for number, status in enumerate(statuses)]
    for exchange in answers:
        keep_latest(selected, exchange, left_out)
    assert list(selected.values()) == [answers[stays]]
    messages: list[str] = []
    left_out.tell(messages.append, where="x")
    assert len(messages) == 1
    assert "several responses" in messages[0]


def test_url_keeps_its_first_position() -> None:
    selected: dict[str, Exchange] = {}
    for url in ["https://a/", "https://a/b", "https://a/"]:
        keep_latest(selected, answer(url, 200), SkipReport())
    assert list(selected) == ["https://a/", "https://a/b"]


def test_urls_are_normalized_without_fragment() -> None:
    for text, url in (
        ("https://example.com/a#part", "https://example.com/a"),
        ("HTTP://EXAMPLE.com:80", "http://example.com/"),
        ("https://example.com/a?b#", "https://example.com/a?b"),
    ):
        assert normalize_http_url(text) == url, text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a URL"),
        ("/relative", "not a URL"),
        ("https://", "not a URL"),
        ("data:text/plain,a", "not http or https"),
        ("blob:https://example.com/1", "not http or https"),
        ("wss://example.com/", "not http or https"),
        ("chrome-extension://abc/x.js", "not http or https"),
        ("https://me@example.com/", "a user name or a password"),
    ],
)
def test_unsupported_urls_are_refused(text: str, reason: str) -> None:
    with pytest.raises(SkipExchange, match=reason):
        normalize_http_url(text)


@pytest.mark.parametrize("status", [200, 204, 206, 301, 404, 500, 999])
def test_statuses_without_request_context_are_accepted(status: int) -> None:
    check_status(status)


@pytest.mark.parametrize("status", [-1, 0, 99, 100, 103, 304, 1000])
def test_statuses_that_need_their_request_are_refused(status: int) -> None:
    with pytest.raises(SkipExchange):
        check_status(status)


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("bytes 0-9/20", 10),
        ("bytes 10-19/20", 10),
        ("bytes 0-9/*", 10),
        ("bytes 0-9/10", 9),
        ("bytes */10", 10),
        ("", 10),
        (f"bytes 0-{'9' * 5000}/10", 10),
    ],
)
def test_partial_206_is_refused(value: str, length: int) -> None:
    with pytest.raises(SkipExchange, match="206"):
        as_complete_response(206, {"content-range": value}, length)


def messages_of(left_out: SkipReport) -> list[str]:
    messages: list[str] = []
    left_out.tell(messages.append, where="site.har")
    return messages


def test_each_reason_has_one_message_with_count_and_example() -> None:
    left_out = SkipReport()
    left_out.add("hidden", "a")
    left_out.add("no URL", "b")
    left_out.add("hidden", "c")
    assert messages_of(left_out) == ["site.har: left out 2, such as 'a': hidden", "site.har: left out 'b': no URL"]


def test_example_is_shortened_and_escaped() -> None:
    left_out = SkipReport()
    left_out.add("not http or https", "data:text/plain," + "x" * 1_000_000)
    left_out.add("hidden", "\x1b[2J\udcff\n")
    long, wild = messages_of(left_out)
    assert len(long) < 200
    assert wild.isprintable()


def test_representation_headers_are_kept() -> None:
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


DROPPED = [
        "Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Trailer", "Upgrade", "Alt-Svc",
        "Set-Cookie", "set-cookie2", "WWW-Authenticate", "Clear-Site-Data", "Strict-Transport-Security",
        "Public-Key-Pins", "Age", "Variants", "Variant-Key", ":status", "", "no token", "n\u00e4me", "na\u00efve\u212a",
]  # fmt: skip


def test_connection_user_and_host_headers_are_dropped() -> None:
    fields = [(name, "x") for name in DROPPED if name != "Connection"]
    assert filter_headers([*fields, ("Connection", "close"), ("content-type", "text/css")]) == {
        "content-type": "text/css"
    }


def test_fields_named_in_connection_are_dropped() -> None:
    assert filter_headers([("X-Hop", "1"), ("Connection", "close, x-hop"), ("x-end", "2")]) == {"x-end": "2"}


def test_repeated_values_are_joined_except_single_ones() -> None:
    fields = [("Vary", "a"), ("vary", "b"), ("Content-Type", "text/html"), ("content-type", "text/css")]
    assert filter_headers(fields) == {"vary": "a, b", "content-type": "text/css"}


@pytest.mark.parametrize(
    ("values", "joined"), [(["", ""], ""), (["", "a"], "a"), (["a", ""], "a"), (["a", "", "b"], "a, b")]
)
def test_empty_values_are_not_joined(values: list[str], joined: str) -> None:
    assert filter_headers([("x", value) for value in values]) == {"x": joined}


def test_values_are_latin_1_without_control_characters() -> None:
    for value, written in (
        ("  a b \t", "a b"),
        ("a\nb", "a, b"),
        ("a\r\n b\r\n", "a, b"),
        ("a\x00b\x1fc\x7f", "a b c"),
        ("a\tb", "a\tb"),
        ("caf\xe9", "caf\xe9"),
        ("\u2013", "\xe2\x80\x93"),
        ("", ""),
    ):
        assert filter_headers([("x", value)]) == {"x": written}, value


def test_every_response_has_a_content_type() -> None:
    for own, otherwise, found in (
        ("text/html; charset=x", "image/png", "text/html; charset=x"),
        ("", "image/png", "image/png"),
        ("nonsense", "x-unknown", "application/octet-stream"),
        ("", "", "application/octet-stream"),
        ("text/html\ufffd", "text/css", "text/css"),
    ):
        assert with_content_type({"content-type": own} if own else {}, otherwise)["content-type"] == found, own


def test_changed_coding_weakens_the_etag_and_drops_digests() -> None:
    headers = {
        "etag": '"a"',
        "digest": "x",
        "content-md5": "y",
        "repr-digest": "z",
        "content-encoding": "gzip",
        "a": "b",
    }
    assert without_content_encoding(headers) == {"etag": 'W/"a"', "a": "b"}
    assert without_content_encoding({"etag": 'W/"a"'}) == {"etag": 'W/"a"'}


def test_utf_8_charset_replaces_the_old_one() -> None:
    for content_type, written in (
        ("text/html", "text/html; charset=utf-8"),
        ("Text/HTML; Charset=windows-1251", "Text/HTML; charset=utf-8"),
        ("text/plain; format=flowed;charset=x; delsp=yes", "text/plain; format=flowed; delsp=yes; charset=utf-8"),
        ("application/javascript", "application/javascript; charset=utf-8"),
        ("image/svg+xml", "image/svg+xml; charset=utf-8"),
        ("application/xml;", "application/xml; charset=utf-8"),
        ("application/json", "application/json"),
        ("application/ld+json; charset=x", "application/ld+json; charset=x"),
        ("image/png", "image/png"),
    ):
        assert with_utf8_charset(content_type) == written, content_type
