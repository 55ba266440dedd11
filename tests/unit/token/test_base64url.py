import pytest

from headgate.token import base64url


@pytest.mark.parametrize("content", [b"", b"a", b"ab", b"abc", bytes(range(256)), b"\xfb\xff"])
def test_round_trip(content):
    text = base64url.encode(content)
    assert text.isascii()
    assert "=" not in text
    assert base64url.decode(text) == content


@pytest.mark.parametrize(
    "text",
    ["YQ==", "YR", "YWL", "Y", "+/+/", "YQ\n", " YQ", "Y Q", "YQ.", "äöü", "\ud800", "Y\0Q", "====", "Ｙ"],
)
def test_another_spelling_is_none(text):
    assert base64url.decode(text) is None
