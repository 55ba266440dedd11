"""`scripts.docs` finds what is wrong in built pages."""

import pytest

from scripts.docs import problems

GOOD = (
    '<h1 id="top">T</h1><a href="b.html#top">b</a><a href="https://example.com/">x</a><img src="p.svg" alt="A picture">'
)


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ("", None),
        ('<a href="c.html">c</a>', "c.html"),
        ('<a href="b.html#gone">b</a>', "b.html#gone: no such anchor"),
        ('<a href="#gone">b</a>', "#gone: no such anchor"),
        ('<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "//fonts.example/x.css"),
        ('<img src="p.svg">', "#an image without alternative text: p.svg: no such anchor"),
    ],
)
def test_wrong_links_foreign_requests_and_silent_images_are_found(tmp_path, added, problem):
    (tmp_path / "p.svg").write_text("<svg/>")
    (tmp_path / "b.html").write_text(GOOD)
    (tmp_path / "a.html").write_text(GOOD + added)
    assert problems(tmp_path) == ([f"a.html: {problem}"] if problem else [])
