from headgate.http.media_type import extract_essence, parse_essence, parse_weights, quality

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


TEXT, PROBLEM = b"text/plain", b"application/problem+json"


NEGOTIATIONS = [
    (b"", TEXT),
    (b"*/*", TEXT),
    (b"text/html, */*;q=0.1", TEXT),
    (b"application/problem+json", PROBLEM),
    (b"APPLICATION/Problem+JSON", PROBLEM),
    (b"application/*", PROBLEM),
    (b"application/problem+json;q=0.4, text/plain;q=0.5", TEXT),
    (b"application/problem+json;q=0.6, text/plain;q=0.5", PROBLEM),
    (b"text/plain;q=0, */*", PROBLEM),
    (b"*/*, text/*;q=0.2", PROBLEM),
    (b"application/problem+json;q=0, */*;q=0.1", TEXT),
    (b"image/png", TEXT),
    (b"application/problem+json ; charset=utf-8 ; Q=0.9 , text/plain ; q=0.8", PROBLEM),
]


def test_the_most_specific_range_has_the_weight_of_a_type():
    for accept, expected in NEGOTIATIONS:
        assert max((TEXT, PROBLEM), key=lambda offer: quality(accept, offer)) == expected, accept


WEIGHTS = [
    (b"text/plain;q=0.25", 0.25),
    (b"text/plain;q=1.000", 1.0),
    (b"text/plain;q=7", 1.0),
    (b"text/plain;q=-1", 1.0),
    (b"text/plain;q=nan", 1.0),
    (b"text/plain;q=\xb2", 1.0),
    (b"text/plain;q=", 1.0),
    (b"text/plain;q=1.2.3", 1.0),
    (b",,;q=,text/plain;q=0.5,", 0.5),
    (b"text/html", 0.0),
    (b"text/plain;q=0.1, text/*, */*", 0.1),
]


def test_malformed_weight_counts_as_one():
    for accept, expected in WEIGHTS:
        assert quality(accept, TEXT) == expected, accept


LISTS = [
    (b"", []),
    (b"gzip", [(b"gzip", 1.0)]),
    (b"fr;q=0.5, EN, *;Q=0", [(b"fr", 0.5), (b"en", 1.0), (b"*", 0.0)]),
    (b"a;q=0.2, b;q=0.3, A;q=0.4, b;q=0.1", [(b"a", 0.4), (b"b", 0.3)]),
    (b" , ;q=1,\t,a ; level=1 ; q=0.001 ,", [(b"a", 0.001)]),
    (b"a;, b;;q=0.5, c;q", [(b"a", 1.0), (b"b", 0.5), (b"c", 1.0)]),
]


def test_weighted_list_keeps_its_order_and_the_greater_of_two_weights():
    for field, expected in LISTS:
        assert list(parse_weights(field).items()) == expected, field
