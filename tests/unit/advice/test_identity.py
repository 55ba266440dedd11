import pytest

from headgate.advice import MEDIA_TYPE, AdviceCache, AdviceEntry, AdviceResponse, AgentIdentity, interpret, parse_advice
from headgate.errors import ConfigurationError
from tests.quotes import quotes


def test_identity_is_the_tuple_of_its_names():
    identity = AgentIdentity(["ExampleBot", "prefetch-proxy", "*"])
    assert identity == ("ExampleBot", "prefetch-proxy", "*")
    assert identity.brand == "ExampleBot"
    assert AgentIdentity(identity) is identity
    assert AgentIdentity(iter(["A", "*"])) == ("A", "*")
    assert AgentIdentity.of("ExampleProxy", prefetch_proxy=True) == ("ExampleProxy", "prefetch-proxy", "*")
    assert AgentIdentity.of("ExampleBot") == ("ExampleBot", "*")


@quotes(
    "traffic-advice 4",
    "Its agent identity is all of the following that apply, in order: 1. The brand name 2. "
    '"prefetch-proxy", if the agent is a proxy server which exclusively serves prefetch traffic (for '
    'example, a private prefetch proxy) 3. "*"',
)
def test_text_is_a_brand_name():
    for brand in ("ExampleBot", "Prüfer", "Chrome Privacy Preserving Prefetch Proxy", "*"):
        assert AgentIdentity(brand) == (brand, "*")
        assert AgentIdentity([brand, "*"]) == (brand, "*")


def test_every_function_takes_an_identity_its_names_or_a_brand_name():
    text = '[{"user_agent": "Bot", "disallow": true}, {"user_agent": "ExampleBot", "fraction": 0.5}]'
    response = AdviceResponse(200, [("Content-Type", MEDIA_TYPE)], text.encode())
    for identity in ("ExampleBot", ["ExampleBot", "*"], AgentIdentity("ExampleBot")):
        assert parse_advice(text, identity) == AdviceEntry(fraction=0.5)
        assert interpret(response, identity) == AdviceEntry(fraction=0.5)
        assert AdviceCache(identity).identity == ("ExampleBot", "*")


INVALID = [
    [], ["*"], ["ExampleBot"], ["*", "ExampleBot"], ["ExampleBot", "prefetch-proxy"], ["ExampleBot", "* "],
    ["", "*"], [" ", "*"], ["ExampleBot", "", "*"], [None, "*"], [b"ExampleBot", "*"],
    ["Example\nBot", "*"], ["Example\r\nX: y", "*"], ["Example\x00", "*"], ["\x7f", "*"], ["\tExampleBot", "*"],
    3, b"ExampleBot", "https://example.com", ["ExampleBot", "http://127.0.0.1:8080", "*"],
    "ExampleBot/1.0 (+https://example.com/bot)", "Mozilla/5.0 (compatible; ExampleBot)",
    "ExampleBot,*", "ExampleBot,prefetch-proxy,*", "", " ", "Example\nBot",
]  # fmt: skip


@quotes(
    "traffic-advice 3",
    'An agent identity is a list of strings. It must contain at least two elements, and the last must be "*".',
)
def test_invalid_identity_is_refused():
    for names in INVALID:
        with pytest.raises(ConfigurationError, match="the agent identity"):
            AgentIdentity(names)
