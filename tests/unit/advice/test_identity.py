"""Sections 3 and 4: who an agent is."""

from collections.abc import Iterable

import pytest

from headgate.advice import (
    MEDIA_TYPE,
    AdviceCache,
    AdviceEntry,
    AdviceResponse,
    AgentIdentity,
    interpret,
    parse_advice,
)
from headgate.errors import ConfigurationError


def test_an_identity_is_the_list_of_its_names() -> None:
    identity = AgentIdentity(["ExampleBot", "prefetch-proxy", "*"])
    assert identity == ("ExampleBot", "prefetch-proxy", "*")
    assert identity.brand == "ExampleBot"
    assert AgentIdentity(identity) == identity
    assert AgentIdentity(iter(["A", "*"])) == ("A", "*")


@pytest.mark.parametrize("brand", ["ExampleBot", "Prüfer", "Chrome Privacy Preserving Prefetch Proxy", "*"])
def test_one_text_is_a_brand_name_and_every_agent(brand: str) -> None:
    assert AgentIdentity(brand) == (brand, "*")


def test_an_identity_is_an_identity_already() -> None:
    identity = AgentIdentity("ExampleBot")
    assert AgentIdentity(identity) is identity


@pytest.mark.parametrize("identity", ["ExampleBot", ["ExampleBot", "*"], AgentIdentity("ExampleBot")])
def test_whatever_takes_an_identity_takes_its_names_or_the_brand_name_alone(identity: Iterable[str]) -> None:
    text = '[{"user_agent": "Bot", "disallow": true}, {"user_agent": "ExampleBot", "fraction": 0.5}]'
    assert parse_advice(text, identity) == AdviceEntry(fraction=0.5)
    response = AdviceResponse(200, [("Content-Type", MEDIA_TYPE)], text.encode())
    assert interpret(response, identity) == AdviceEntry(fraction=0.5)
    assert AdviceCache(identity).identity == ("ExampleBot", "*")


def test_an_identity_is_all_that_applies_in_order() -> None:
    assert AgentIdentity.of("PollyPrefetchProxy", prefetch_proxy=True) == ("PollyPrefetchProxy", "prefetch-proxy", "*")
    assert AgentIdentity.of("ExampleBot") == ("ExampleBot", "*")


@pytest.mark.parametrize(
    "names",
    [
        [], ["*"], ["ExampleBot"], ["*", "ExampleBot"], ["ExampleBot", "prefetch-proxy"], ["ExampleBot", "* "],
        ["", "*"], [" ", "*"], ["ExampleBot", "", "*"], [None, "*"], [b"ExampleBot", "*"],
        ["Example\nBot", "*"], ["Example\r\nX: y", "*"], ["Example\x00", "*"], ["\x7f", "*"], ["\tExampleBot", "*"],
        "ExampleBot,*", "ExampleBot,prefetch-proxy,*", "", " ", "Example\nBot",
    ],
)  # fmt: skip
def test_what_is_no_identity_is_refused_with_what_would_be_one(names: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AgentIdentity(names)
    assert "identity" in str(caught.value) or "agent" in str(caught.value)


@pytest.mark.parametrize("names", [["*", "*"], ["Prüfer", "*"], ["Chrome Privacy Preserving Prefetch Proxy", "*"]])
def test_odd_names_are_names(names: list[str]) -> None:
    assert AgentIdentity(names) == tuple(names)
