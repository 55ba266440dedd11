"""Sections 3 and 4: who an agent is."""

import pytest

from headgate.advice import AgentIdentity
from headgate.errors import ConfigurationError


def test_an_identity_is_the_list_of_its_names() -> None:
    identity = AgentIdentity(["ExampleBot", "prefetch-proxy", "*"])
    assert identity == ("ExampleBot", "prefetch-proxy", "*")
    assert identity.brand == "ExampleBot"
    assert AgentIdentity(identity) == identity
    assert AgentIdentity(iter(["A", "*"])) == ("A", "*")


def test_an_identity_is_all_that_applies_in_order() -> None:
    assert AgentIdentity.of("PollyPrefetchProxy", prefetch_proxy=True) == ("PollyPrefetchProxy", "prefetch-proxy", "*")
    assert AgentIdentity.of("ExampleBot") == ("ExampleBot", "*")


@pytest.mark.parametrize(
    "names",
    [
        [], ["*"], ["ExampleBot"], ["*", "ExampleBot"], ["ExampleBot", "prefetch-proxy"], ["ExampleBot", "* "],
        ["", "*"], [" ", "*"], ["ExampleBot", "", "*"], [None, "*"], [b"ExampleBot", "*"],
        ["Example\nBot", "*"], ["Example\r\nX: y", "*"], ["Example\x00", "*"], ["\x7f", "*"], ["\tExampleBot", "*"],
        "ExampleBot,*", "*",
    ],
)  # fmt: skip
def test_what_is_no_identity_is_refused_with_what_would_be_one(names: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AgentIdentity(names)
    assert "identity" in str(caught.value) or "agent" in str(caught.value)


@pytest.mark.parametrize("names", [["*", "*"], ["Prüfer", "*"], ["Chrome Privacy Preserving Prefetch Proxy", "*"]])
def test_odd_names_are_names(names: list[str]) -> None:
    assert AgentIdentity(names) == tuple(names)
