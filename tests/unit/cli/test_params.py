import math

import click
import pytest
from click.testing import CliRunner

from headgate.cli.params import ADDRESS, COUNT, RULE, SECONDS, header_option, number, whole_number
from headgate.errors import ConfigurationError
from headgate.http.fields import join_fields

NUMBERS = [
    (number("a number"), "1e3", 1000.0),
    (number("a number", 0.5, 2), "0.5", 0.5),
    (number("a number", 0.5, 2), "2", 2.0),
    (whole_number(), "0", 0),
    (whole_number(1, 256), "256", 256),
]
OUT_OF_RANGE = [
    (number("a number"), "-1", "must be a number of at least 0, got '-1'"),
    (number("a number"), "inf", "must be a number of at least 0, got 'inf'"),
    (number("a number of seconds", 0, 86_400), "1d", "must be a number of seconds from 0 to 86,400, got '1d'"),
    (whole_number(), "1.5", "must be a whole number of at least 0, got '1.5'"),
    (whole_number(1, 65_535), "0", "must be a whole number from 1 to 65,535, got '0'"),
    (whole_number(1, 65_535), "65536", "must be a whole number from 1 to 65,535, got '65536'"),
    (whole_number(-5), "x", "must be a whole number of at least -5, got 'x'"),
]


def test_numbers_within_their_range_are_parsed():
    for parse, text, value in NUMBERS:
        assert parse(text) == value
    assert math.isfinite(number("a number")("1e308"))


@pytest.mark.parametrize(("parse", "text", "message"), OUT_OF_RANGE)
def test_other_numbers_are_errors_with_the_range_and_the_text(parse, text, message):
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_an_invalid_text_is_wrong_use():
    for kind, text in ((ADDRESS, "8080"), (COUNT, "-1"), (RULE, "often"), (SECONDS, "soon")):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)
    assert ADDRESS.convert(":80", None, None) == "0.0.0.0:80"


@click.command()
@header_option("Fields.")
def show(fields):
    click.echo(repr(fields))


def test_header_fields_are_parsed_to_lower_case_names_and_values():
    ran = CliRunner().invoke(show, ["-H", "Accept-Language:\t fr ", "-H", "X-One: caf\xe9", "-H", "x-two:"])
    assert ran.output == "(('accept-language', 'fr'), ('x-one', 'caf\xe9'), ('x-two', ''))\n"
    for text in ("no field", ": a", "a b: c", "a: \n", "a: \u20ac", "\xe9: a"):
        ran = CliRunner().invoke(show, ["-H", text])
        assert ran.exit_code == 2, text
        assert "expected 'Name: value'" in ran.output


def test_values_of_a_repeated_field_are_joined():
    assert join_fields([("a", "1"), ("b", "2"), ("a", "3")]) == {"a": "1, 3", "b": "2"}
