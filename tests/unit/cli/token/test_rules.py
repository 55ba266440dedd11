import json
import time

import pytest

from headgate.token import Checker, Valid, read_keys

PROXY = ("--proxy", "https://prefetch.example.com")
PAGES = ("https://a.example/1", "https://b.example/2")


def test_rules_with_as_many_tokens_as_candidates(run, key):
    told = run("rules", "--key", key, *PROXY, "--ttl", "60", *PAGES)
    assert (told.code, told.err) == (0, "")
    assert told.out.count(b"\n") == 1
    (rule,) = json.loads(told.out)["prefetch"]
    assert rule["urls"] == list(PAGES)
    assert rule["requires"][0] == "anonymous-client-ip-when-cross-origin"
    assert rule["referrer_provided_prefetch_proxy"] == PROXY[1]
    assert len(set(rule["proxy_authorization_tokens"])) == 2
    for token in rule["proxy_authorization_tokens"]:
        valid = Checker(read_keys(key.read_bytes())).check(token, now=time.time(), origin="")
        assert isinstance(valid, Valid)
        assert valid.expires < time.time() + 60.01


def test_bound_and_without_a_fallback(run, key):
    told = run("rules", "--key", key, *PROXY, "--bind", "--no-fallback", *PAGES)
    assert [rule["urls"] for rule in told.json["prefetch"]] == [[PAGES[0]], [PAGES[1]]]
    for rule in told.json["prefetch"]:
        assert "anonymous-client-ip-when-cross-origin" not in rule["requires"]
        assert (
            Checker(read_keys(key.read_bytes()))
            .check(rule["proxy_authorization_tokens"][0], now=time.time(), origin=rule["urls"][0][:-2])
            .is_bound
        )


@pytest.mark.parametrize(
    "hostile", ["https://a.example/?</script><script>alert(1)</script>", "https://a.example/#<!--"]
)
def test_what_strangers_put_into_a_url_stays_in_it(run, key, hostile):
    told = run("rules", "--key", key, *PROXY, hostile)
    assert told.code == 0
    assert b"<" not in told.out
    assert told.out.isascii()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*PROXY, "/next"], "invalid URL '/next'; expected an https URL"),
        (["--proxy", "http://p.example", *PAGES], "invalid proxy URL 'http://p.example'"),
        ([*PROXY, "--ttl", "86401", *PAGES], "at most 86400 s"),
    ],
)
def test_what_makes_no_rules(run, key, arguments, said):
    told = run("rules", "--key", key, *arguments)
    assert (told.code, told.out) == (2, b"")
    assert said in told.err
    assert told.err.count("\n") == 1
