import pytest

from headgate.http import is_token


@pytest.mark.parametrize("text", ["X-Api-Key", "GET", "a", "x_y.z~1!#$%&'*+-^`|"])
def test_names_are_tokens(text):
    assert is_token(text)


@pytest.mark.parametrize("text", ["", " ", "X Y", "X:", "X\r\nY", "X\n", "Ü", '"x"', "a/b", "a,b", "a(b)"])
def test_other_texts_are_not_tokens(text):
    assert not is_token(text)
