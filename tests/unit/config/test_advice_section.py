import pytest

from headgate.advice_control import Entry
from headgate.config import Configuration, parse, schema
from headgate.config.advice_section import AdviceEntrySection, AdviceSection, parse_capacity
from headgate.errors import ConfigurationError


@pytest.mark.parametrize(("text", "rate"), [("500/s", 500.0), ("30 per min", 0.5), ("1000/h", 1000 / 3600)])
def test_a_capacity_is_a_rate(text, rate):
    assert parse_capacity(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "learned"])
def test_a_capacity_that_is_not_given_is_none(text):
    assert parse_capacity(text) is None


@pytest.mark.parametrize("text", ["many", "500", "500/s burst 3", "0/s", "-1/s"])
def test_another_capacity_is_an_error(text):
    with pytest.raises(ConfigurationError, match="expected a rate such as '500/s', or 'learned'"):
        parse_capacity(text)


def test_a_list_is_a_table_of_entries():
    listed = parse('[[advice]]\nuser_agent = "a"\nfraction = 0.5\n[[advice]]\nuser_agent = "*"\ndisallow = true')
    table = parse(
        '[[advice.entry]]\nuser_agent = "a"\nfraction = 0.5\n[[advice.entry]]\nuser_agent = "*"\ndisallow = true'
    )
    assert listed == table
    assert listed.advice.mode == "static"
    assert [entry.entry() for entry in listed.advice.entries] == [Entry("a", fraction=0.5), Entry("*", disallow=True)]


def test_the_schema_has_both_forms():
    advice = schema()["$defs"]["Configuration"]["properties"]["advice"]
    assert [one.get("$ref", one.get("type")) for one in advice["anyOf"]] == ["#/$defs/AdviceSection", "array"]


def test_entries_have_defaults_only_in_a_mode_that_computes():
    assert Configuration().advice.entries == ()
    assert [entry.user_agent for entry in AdviceSection(mode="monitor").entries] == ["prefetch-proxy", "*"]
    own = (AdviceEntrySection(user_agent="a", fraction="auto"),)
    assert AdviceSection(mode="adaptive", entry=own).entries == own


def test_the_default_freshness_follows_the_mode():
    assert AdviceSection().freshness == 1_800
    assert AdviceSection(mode="adaptive").freshness == 600
    assert AdviceSection(mode="adaptive", max_age=900).freshness == 900


def test_a_max_age_that_the_response_cannot_have_is_an_error():
    """Cache-Control has whole seconds: agents would obey the advice for another time than is expected."""
    with pytest.raises(ConfigurationError, match=r"advice\.max_age: expected a whole number from 0 to 172,800, got "):
        parse("[advice]\nmax_age = 1.5")
