import pytest

from headgate.errors import ConfigurationError
from headgate.token import mint
from headgate.token.minting import target_origin
from headgate.token.wire import split

NOW = 1_700_000_000.0


def test_what_a_token_says(key, entropy):
    token = mint(key, now=NOW, ttl=60, entropy=entropy)
    head, _, signature = split(token)
    assert (head.is_bound, head.key_id, head.expires) == (False, key.key_id, NOW + 60)
    assert len(head.identity) == 24
    assert len(signature) == {"hmac-sha256": 32, "ed25519": 64}[key.algorithm]
    assert split(mint(key, now=NOW, ttl=60, entropy=entropy, origin="https://a.example/"))[0].is_bound


def test_sixteen_bytes_of_chance_are_in_each(key):
    asked = []

    def entropy(length):
        asked.append(length)
        return bytes([len(asked)]) * length

    first, second = (split(mint(key, now=NOW, ttl=60, entropy=entropy))[0] for _ in range(2))
    assert asked == [16, 16]
    assert first.identity == key.key_id + b"\1" * 16
    assert second.identity == key.key_id + b"\2" * 16


@pytest.mark.parametrize("ttl", [0, -1, 86_400.5, float("inf"), float("nan")])
def test_a_ttl_that_the_key_does_not_allow(key, entropy, ttl):
    with pytest.raises(ConfigurationError, match="at most 86400 s"):
        mint(key, now=NOW, ttl=ttl, entropy=entropy)
    assert mint(key, now=NOW, ttl=86_400, entropy=entropy)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://example.com", "https://example.com"),
        ("HTTPS://Example.COM:443/a?b#c", "https://example.com"),
        ("https://user:password@example.com:8443/", "https://example.com:8443"),
        ("https://0x7f.1", "https://127.0.0.1"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("https://example.com./a", "https://example.com"),
        ("https://example.com.:8443", "https://example.com:8443"),
        ("https://[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_the_origin_of_a_url_is_what_counts(url, origin):
    assert target_origin(url) == origin


@pytest.mark.parametrize("url", ["", "example.com", "http://example.com", "wss://example.com", "data:,", "https://"])
def test_only_https_origins_can_be_targets(key, entropy, url):
    with pytest.raises(ConfigurationError, match=r"expected an https origin, such as https://example\.com"):
        mint(key, now=NOW, ttl=60, entropy=entropy, origin=url)
