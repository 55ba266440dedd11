from hypothesis import given
from hypothesis import strategies as st

from headgate.http.fields import is_token, lines_of, parameter, sf_integer, sf_string, split_list

LISTS = [
    # The examples of fetch.spec.whatwg.org, section 2.2.2.
    (["nosniff,"], ["nosniff", ""]),
    ([""], [""]),
    (['text/html;", x/x'], ['text/html;", x/x']),
    (['text/html;"', "x/x"], ['text/html;", x/x']),
    (['x/x;test="hi",y/y'], ['x/x;test="hi"', "y/y"]),
    (["x / x,,,1"], ["x / x", "", "", "1"]),
    (['"1,2", 3'], ['"1,2"', "3"]),
    ([], [""]),
    (["a", "b,c"], ["a", "b", "c"]),
    ([" a\t, \tb "], ["a", "b"]),
    (["\ra\n"], ["\ra\n"]),
    ([r'"a\",b",c'], [r'"a\",b"', "c"]),
    ([r'"a\\",b'], [r'"a\\"', "b"]),
    (['a"b,c"d"e,f"g,h'], ['a"b,c"d"e,f"g', "h"]),
    (['"a' + "\\"], ['"a' + "\\"]),
    (['"\n,"'], ['"\n,"']),
    (["\\,a"], ["\\", "a"]),
]


def test_list_is_split_at_commas_that_are_not_quoted():
    for lines, members in LISTS:
        assert split_list(lines) == members, lines


def split_by_the_steps_of_fetch(value):
    """Follow the steps of the Fetch standard literally."""
    position, values, temporary = 0, [], ""
    while True:
        while position < len(value) and value[position] not in '",':
            temporary += value[position]
            position += 1
        if position < len(value) and value[position] == '"':
            start = position
            position += 1
            while position < len(value):
                character = value[position]
                position += 1
                if character == '"':
                    break
                if character == "\\" and position < len(value):
                    position += 1
            temporary += value[start:position]
            if position < len(value):
                continue
        values.append(temporary.strip("\t "))
        temporary = ""
        if position >= len(value):
            return values
        position += 1


@given(st.text('",\\ \ta', max_size=12) | st.text())
def test_split_list_equals_the_steps_of_fetch(value):
    assert split_list([value]) == split_by_the_steps_of_fetch(value)


def test_value_of_a_megabyte_is_split_in_linear_time():
    assert len(split_list(["," * 1_000_000])) == 1_000_001
    assert len(split_list(['"' + '\\"' * 500_000])) == 1
    assert len(split_list(['""' * 500_000])) == 1


def test_lines_of_a_name_in_any_case_keep_their_order():
    fields = [("Vary", "a"), ("X", "b"), ("vary", "c"), ("VARY", "")]
    assert lines_of(fields, "vary") == ["a", "c", ""]
    assert lines_of(fields, "age") == []


def test_tokens():
    for text in ("X-Api-Key", "GET", "a", "x_y.z~1!#$%&'*+-^`|"):
        assert is_token(text), text
    for text in ("", " ", "X Y", "X:", "X\r\nY", "X\n", "Ü", '"x"', "a/b", "a,b", "a(b)"):
        assert not is_token(text), text


def test_string_of_a_structured_field():
    for text, expected in (
        ("api", b'"api"'),
        ("", b'""'),
        ('say "hi"', b'"say \\"hi\\""'),
        ("a\\b", b'"a\\\\b"'),
        ("café", b'"caf%C3%A9"'),
        ("a\r\nb", b'"a%0D%0Ab"'),
        (" ~", b'" ~"'),
        ("\x1f\x7f", b'"%1F%7F"'),
        ("\udcff", b'"?"'),
    ):
        assert sf_string(text) == expected, text


def test_integer_of_a_structured_field_has_at_most_fifteen_digits():
    assert sf_integer(10**15) == b"999999999999999"
    assert sf_integer(-(10**15)) == b"-999999999999999"
    assert parameter(b"q", 20) == b";q=20"
