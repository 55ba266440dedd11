import pytest

from headgate.agent.bundle import read_url_list
from headgate.errors import ConfigurationError


def listed(tmp_path, content):
    path = tmp_path / "urls.txt"
    path.write_bytes(content)
    return read_url_list(path)


def test_lines_comments_and_what_is_there_twice(tmp_path):
    content = b"""\xef\xbb\xbfhttps://a.example
# a comment
   https://b.example/x#part\r

\thttps://a.example/ \n  # another
HTTPS://A.EXAMPLE:443/./
https://b.example/x
https://a.example/%41?q=\xc3\xa9
"""
    assert listed(tmp_path, content) == [
        "https://a.example/",
        "https://b.example/x",
        "https://a.example/%41?q=%C3%A9",
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"a.example", "not a URL"),
        (b"ftp://a.example/", "not http or https"),
        (b"https://me:secret@a.example/", "a user name or a password"),
        (b"https://a.example:99999/", "not a URL"),
        (b"https://a.example/\xff", "not UTF-8"),
        (b"x" * 5000, "not a URL"),
    ],
)
def test_invalid_line_is_named(tmp_path, line, why):
    with pytest.raises(ConfigurationError, match=rf"urls\.txt, line 3: .*{why}") as refused:
        listed(tmp_path, b"https://a.example/\n\n" + line)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("content", [b"", b"# nothing\n\n"])
def test_an_empty_list_is_an_error(tmp_path, content):
    with pytest.raises(ConfigurationError, match="has no URL in it"):
        listed(tmp_path, content)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot read .*: No such file"):
        read_url_list(tmp_path / "missing")
