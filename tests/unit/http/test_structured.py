import pytest

from headgate.http import parameter, sf_integer, sf_string


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("api", b'"api"'),
        ("", b'""'),
        ('say "hi"', b'"say \\"hi\\""'),
        ("a\\b", b'"a\\\\b"'),
        ("café", b'"caf%C3%A9"'),
        ("a\r\nb", b'"a%0D%0Ab"'),
        (" ~", b'" ~"'),
        ("\x1f\x7f", b'"%1F%7F"'),
        ("\udcff", b'"?"'),
    ],
)
def test_a_string_is_quoted_escaped_and_printable(text: str, expected: bytes) -> None:
    assert sf_string(text) == expected


def test_integers_stay_within_fifteen_digits() -> None:
    assert sf_integer(10**15) == b"999999999999999"
    assert sf_integer(-(10**15)) == b"-999999999999999"
    assert parameter(b"q", 20) == b";q=20"
