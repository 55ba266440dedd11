import json

import pytest

from headgate.errors import ConfigurationError
from headgate.token import Checker, Valid
from headgate.token.rules import script_text, speculation_rules

NOW = 1_700_000_000.0
OWN = ["use-referrer-provided-prefetch-proxy", "prefetch-proxy-authorization-tokens"]
PAGES = ["https://a.example/1", "https://b.example/2", "https://a.example/3"]


@pytest.fixture
def rules(key, entropy):
    settled = {"proxy": "https://prefetch.example.com", "key": key, "now": NOW, "ttl": 60, "entropy": entropy}
    return lambda urls, **changes: speculation_rules(urls, **(settled | changes))


@pytest.fixture
def check(key):
    return lambda token, origin: Checker([key]).check(token, now=NOW, origin=origin)


def test_one_rule_with_a_token_for_each_candidate(rules, check):
    (rule,) = rules(PAGES)["prefetch"]
    tokens = rule.pop("proxy_authorization_tokens")
    assert rule == {
        "source": "list",
        "urls": PAGES,
        "requires": ["anonymous-client-ip-when-cross-origin", *OWN],
        "referrer_provided_prefetch_proxy": "https://prefetch.example.com",
    }
    assert len(set(tokens)) == 3
    assert all(isinstance(check(token, "https://any.example"), Valid) for token in tokens)


def test_bound_tokens_are_with_the_origin_they_are_for(rules, check):
    """A browser takes any token of a rule, so there is a rule for each origin."""
    first, second = rules(PAGES, bind=True)["prefetch"]
    assert (first["urls"], second["urls"]) == ([PAGES[0], PAGES[2]], [PAGES[1]])
    for rule, mine, other in (
        (first, "https://a.example", "https://b.example"),
        (second, "https://b.example", "https://a.example"),
    ):
        assert len(rule["proxy_authorization_tokens"]) == len(rule["urls"])
        for token in rule["proxy_authorization_tokens"]:
            assert check(token, mine).is_bound
            assert check(token, other) == "token_invalid"


def test_a_browser_may_be_kept_from_its_own_proxy(rules):
    (rule,) = rules(PAGES, fallback=False)["prefetch"]
    assert rule["requires"] == OWN


def test_what_is_one_url_is_one_candidate(rules):
    (rule,) = rules(["https://a.example", "HTTPS://A.example:443/", "https://a.example/?"])["prefetch"]
    assert rule["urls"] == ["https://a.example/", "https://a.example/?"]
    assert len(rule["proxy_authorization_tokens"]) == 2


@pytest.mark.parametrize("url", ["/next", "", "http://a.example/", "javascript:alert(1)", "https://u:p@a.example/"])
def test_what_cannot_be_prefetched_through_a_proxy(rules, url):
    with pytest.raises(ConfigurationError, match="expected an https URL without credentials"):
        rules([url])


def test_no_urls_are_no_rules(rules):
    with pytest.raises(ConfigurationError, match="no URL to prefetch"):
        rules([])


@pytest.mark.parametrize(
    "proxy",
    [
        "prefetch.example.com",
        "http://prefetch.example.com",
        "https://prefetch.example.com/path",
        "https://prefetch.example.com/?q",
        "https://prefetch.example.com/#f",
        "https://u:p@prefetch.example.com",
        "",
    ],
)
def test_a_proxy_is_an_https_origin(rules, proxy):
    with pytest.raises(ConfigurationError, match="invalid proxy URL"):
        rules(PAGES, proxy=proxy)
    (rule,) = rules(PAGES, proxy="https://Prefetch.example.com:8443/")["prefetch"]
    assert rule["referrer_provided_prefetch_proxy"] == "https://prefetch.example.com:8443"


@pytest.mark.parametrize("hostile", ["</script>", "<!--", "<script", "\u2028", "é", "]]>"])
def test_nothing_in_it_ends_the_element(hostile):
    rules = {"prefetch": [{"urls": [f"https://a.example/{hostile}"]}]}
    text = script_text(rules)
    assert text.isascii()
    assert "<" not in text
    assert "\n" not in text
    assert json.loads(text) == rules
