import string

import pytest

from headgate.cli.bundle.extract import FileNames


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.com/", "example.com/index.html"),
        ("https://example.com/a/b.css", "example.com/a/b.css"),
        ("https://example.com/a/", "example.com/a/index.html"),
        ("https://example.com:8443/a", "example.com%3A8443/a"),
        ("https://example.com/f.html?v=0&w=/x", "example.com/f.html%3Fv=0&w=%2Fx"),
        ("https://example.com/?q", "example.com/index.html%3Fq"),
        ("https://example.com/a//b", "example.com/a/_/b"),
        ("https://example.com/a%2Fb", "example.com/a%2Fb"),
        ("https://example.com/a\\b", "example.com/a%5Cb"),
        ("https://example.com/a:b", "example.com/a%3Ab"),
        ("https://example.com/nul\0byte", "example.com/nul%00byte"),
        ("https://example.com/caf\u00e9", "example.com/caf%C3%A9"),
        ("https://[::1]/x", "%5B%3A%3A1%5D/x"),
        ("urn:uuid:0f6e", "urn/uuid%3A0f6e"),
        ("data:../../../etc/passwd", "data/%2E%2E/%2E%2E/%2E%2E/etc/passwd"),
        ("foo://../x", "%2E%2E/x"),
        ("foo:///etc/passwd", "foo/etc/passwd"),
        ("foo:/C:/x", "foo/C%3A/x"),
        ("foo:.", "foo/%2E"),
        ("https://example.com/a.../b. ", "example.com/a%2E%2E%2E/b.%20"),
        ("https://example.com/CON/nul.txt", "example.com/%43ON/%6Eul.txt"),
        ("https://example.com/.htaccess", "example.com/.htaccess"),
    ],
)
def test_a_name_is_readable_and_is_one_name_on_every_system(url, name):
    assert FileNames().name(url) == name


def given(*urls):
    names = FileNames()
    return [names.name(url).removeprefix("h/") for url in urls]


def test_equal_names_get_numbers():
    assert given("http://h/a.png", "https://h/a.png", "http://h/A.PNG") == ["a.png", "a~2.png", "A~3.PNG"]
    assert given("http://h/a~2.png", "http://h/a.png", "https://h/a.png") == ["a~2.png", "a.png", "a~3.png"]


def test_a_file_where_another_url_needs_a_directory_and_the_other_way_round():
    assert given("http://h/a", "http://h/a/b", "http://h/a/c") == ["a", "a~2/b", "a~2/c"]
    assert given("http://h/a/b", "http://h/a", "http://h/a/b/c") == ["a/b", "a~2", "a/b~2/c"]


def test_directories_that_a_system_may_take_for_one():
    assert given("http://h/A/x", "http://h/a/x", "http://h/A/y") == ["A/x", "a~2/x", "A/y"]


def test_a_directory_url_and_its_index():
    assert given("http://h/a/", "http://h/a/index.html") == ["a/index.html", "a/index~2.html"]


def test_variants_have_their_keys_in_their_names():
    names = FileNames()
    keys = ["gzip;en", 'br;"x y"', "gzip;EN", "."]
    assert [names.name("http://h/a.html", key) for key in keys] == [
        "h/a~gzip_en.html",
        "h/a~br__x_y_.html",
        "h/a~gzip_EN~2.html",
        "h/a~_.html",
    ]


def test_what_is_too_long_ends_in_a_digest_and_stays_apart():
    long = "http://h/" + "x" * 5_000
    first, second = given(long, long + "y")
    assert first != second
    assert all(len(name) < 200 for name in (first, second))
    assert given("http://h/" + "d/" * 5_000) != given("http://h/" + "d/" * 5_001)
    assert all(len(name) < 900 for name in given("http://h/" + "d/" * 5_000, "http://h/" + "dd/" * 250))
    key = FileNames().name("http://h/a", "k" * 5_000)
    assert len(key) < 200


def test_ten_thousand_equal_names_get_numbers():
    letters = string.ascii_lowercase[:14]
    names = FileNames()
    found = {
        names.name("http://h/" + "".join(c.upper() if number >> i & 1 else c for i, c in enumerate(letters))).lower()
        for number in range(1 << 14)
    }
    assert len(found) == 1 << 14
