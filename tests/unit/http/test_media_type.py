from headgate.http.media_type import extract_essence, parse_essence

MIME_TYPES = [
    ("text/html", "text/html"),
    ("Text/HTML", "text/html"),
    ("text/html;charset=utf-8", "text/html"),
    (" \t\r\ntext/html\n\r\t ; charset=utf-8", "text/html"),
    ("text/html ", "text/html"),
    ("text/html;", "text/html"),
    ('text/html;;;=;\x00;"', "text/html"),
    ("!#$%&'*+-.^_`|~/a+b", "!#$%&'*+-.^_`|~/a+b"),
    ("*/*", "*/*"),
    ("application/trafficadvice+json", "application/trafficadvice+json"),
    ("", None),
    ("text", None),
    ("text/", None),
    ("/html", None),
    ("text /html", None),
    ("text/ html", None),
    ("text/html x", None),
    ("text/html/x", None),
    ("text/(html)", None),
    ("text/html, text/plain", None),
    ("t\u00e9xt/html", None),
    ("text/html\u00a0", None),
    ("text/html\x0b", None),
    ("\ufefftext/html", None),
    ("text/\u212a", None),
    ("text;/html", None),
]


def test_essence_of_one_mime_type():
    for value, essence in MIME_TYPES:
        assert parse_essence(value) == essence, value


CONTENT_TYPES = [
    # The examples of fetch.spec.whatwg.org, section 2.2.2, "extract a MIME type".
    (["text/plain;charset=gbk, text/html"], "text/html"),
    (["text/html;charset=gbk;a=b, text/html;x=y"], "text/html"),
    (["text/html;charset=gbk;a=b", "text/html;x=y"], "text/html"),
    (["text/html;charset=gbk", "x/x", "text/html;x=y"], "text/html"),
    (["text/html", "cannot-parse"], "text/html"),
    (["text/html", "*/*"], "text/html"),
    (["text/html", ""], "text/html"),
    ([], None),
    ([""], None),
    (["*/*"], None),
    (["cannot-parse", "*/*"], None),
    (["text/html, x/x"], "x/x"),
    (["x/x", "text/html"], "text/html"),
    (['text/html;a=", x/x'], "text/html"),
    (['text/html;a="', "x/x"], "text/html"),
    (['text/html;a="b,c", x/x'], "x/x"),
    (['text/html;a=b", x/x;c="d'], "text/html"),
]


def test_last_valid_mime_type_counts():
    for lines, essence in CONTENT_TYPES:
        assert extract_essence(lines) == essence, lines


def test_long_value_takes_linear_time():
    assert parse_essence("a" * 1_000_000) is None
    assert parse_essence(" " * 1_000_000 + "a/b") == "a/b"
    assert parse_essence("a/b" + " " * 1_000_000 + "c") is None
