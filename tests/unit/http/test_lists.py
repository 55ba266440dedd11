"""The Fetch standard's "get, decode, and split", and fields by their names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.http.lists import lines_of, split


@pytest.mark.parametrize(
    ("lines", "members"),
    [
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
    ],
)
def test_members_end_at_commas_that_are_not_quoted(lines: list[str], members: list[str]) -> None:
    assert split(lines) == members


def by_the_letter(value: str) -> list[str]:
    """The standard's steps, one after the other."""
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
def test_splitting_follows_the_steps_of_the_standard(value: str) -> None:
    assert split([value]) == by_the_letter(value)


def test_a_value_of_a_megabyte_is_split_in_one_pass() -> None:
    assert len(split(["," * 1_000_000])) == 1_000_001
    assert len(split(['"' + '\\"' * 500_000])) == 1
    assert len(split(['""' * 500_000])) == 1


def test_lines_are_found_by_their_name_in_any_case_and_keep_their_order() -> None:
    fields = [("Vary", "a"), ("X", "b"), ("vary", "c"), ("VARY", "")]
    assert lines_of(fields, "vary") == ["a", "c", ""]
    assert lines_of(fields, "age") == []
