import json
from functools import partial

import pytest

from headgate.errors import ConfigurationError
from headgate.token import Checker, ValidToken
from headgate.token.rules import script_text, speculation_rules

NOW = 1_700_000_000.0
SITE_PROXY = ["use-referrer-provided-prefetch-proxy", "prefetch-proxy-authorization-tokens"]
PAGES = ["https://a.example/1", "https://b.example/2", "https://a.example/3"]


@pytest.fixture
def rules(key, entropy):
    return partial(speculation_rules, proxy="https://prefetch.example.com", key=key, now=NOW, ttl=60, entropy=entropy)


@pytest.fixture
def check(key):
    return lambda token, origin: Checker([key]).check(token, now=NOW, origin=origin)


def test_one_rule_with_a_token_for_each_url(rules, check):
    (rule,) = rules(PAGES)["prefetch"]
    tokens = rule.pop("proxy_authorization_tokens")
    assert rule == {
        "source": "list",
        "urls": PAGES,
        "requires": ["anonymous-client-ip-when-cross-origin", *SITE_PROXY],
        "referrer_provided_prefetch_proxy": "https://prefetch.example.com",
    }
    assert len(set(tokens)) == 3
    assert all(isinstance(check(token, "https://any.example"), ValidToken) for token in tokens)


def test_bound_tokens_have_one_rule_for_each_origin(rules, check):
    first, second = rules(PAGES, bind=True)["prefetch"]
    assert (first["urls"], second["urls"]) == ([PAGES[0], PAGES[2]], [PAGES[1]])
    for rule, own, other in (
        (first, "https://a.example", "https://b.example"),
        (second, "https://b.example", "https://a.example"),
    ):
        assert len(rule["proxy_authorization_tokens"]) == len(rule["urls"])
        for token in rule["proxy_authorization_tokens"]:
            assert check(token, own).is_bound
            assert check(token, other) == "token_invalid"


def test_fallback_to_the_browser_s_proxy_can_be_disabled(rules):
    (rule,) = rules(PAGES, fallback=False)["prefetch"]
    assert rule["requires"] == SITE_PROXY


def test_repeated_url_counts_once(rules):
    (rule,) = rules(["https://a.example", "HTTPS://A.example:443/", "https://a.example/?"])["prefetch"]
    assert rule["urls"] == ["https://a.example/", "https://a.example/?"]
    assert len(rule["proxy_authorization_tokens"]) == 2


def test_invalid_urls_are_refused(rules):
    for url in ("/next", "", "http://a.example/", "javascript:alert(1)", "https://u:p@a.example/"):
        with pytest.raises(ConfigurationError, match="expected an https URL without credentials"):
            rules([url])
    with pytest.raises(ConfigurationError, match="require at least one URL"):
        rules([])


def test_proxy_is_an_https_origin(rules):
    (rule,) = rules(PAGES, proxy="https://Prefetch.example.com:8443/")["prefetch"]
    assert rule["referrer_provided_prefetch_proxy"] == "https://prefetch.example.com:8443"
    for proxy in (
        "prefetch.example.com",
        "http://prefetch.example.com",
        "https://prefetch.example.com/path",
        "https://prefetch.example.com/?q",
        "https://prefetch.example.com/#f",
        "https://u:p@prefetch.example.com",
        "",
    ):
        with pytest.raises(ConfigurationError, match="invalid proxy URL"):
            rules(PAGES, proxy=proxy)


def test_script_text_cannot_end_the_element():
    for hostile in ("</script>", "<!--", "<script", "\u2028", "é", "]]>"):
        rules = {"prefetch": [{"urls": [f"https://a.example/{hostile}"]}]}
        text = script_text(rules)
        assert text.isascii()
        assert "<" not in text
        assert "\n" not in text
        assert json.loads(text) == rules
