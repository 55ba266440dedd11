import pytest

from headgate.config import parse
from headgate.config.section import Address
from headgate.config.store_url import StoreUrl
from headgate.errors import ConfigurationError


def test_memory_needs_no_url():
    assert StoreUrl.parse("memory") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://10.0.0.1", StoreUrl((Address("10.0.0.1", 6379),))),
        ("redis://h:7000/3", StoreUrl((Address("h", 7000),), database=3)),
        ("redis://[::1]:7000/", StoreUrl((Address("::1", 7000),))),
        ("redis://[::1]", StoreUrl((Address("::1", 6379),))),
        ("rediss://h", StoreUrl((Address("h", 6379),), tls=True)),
        ("redis://:p%40ss@h", StoreUrl((Address("h", 6379),), password="p@ss")),
        ("redis://me:a@b:c@h:1", StoreUrl((Address("h", 1),), username="me", password="a@b:c")),
        ("redis+cluster://a:1,b:2,c", StoreUrl((Address("a", 1), Address("b", 2), Address("c", 6379)), "cluster")),
        ("redis+sentinel://a,b:2/main", StoreUrl((Address("a", 26379), Address("b", 2)), "sentinel", "main")),
        ("rediss+sentinel://:p@a/m%2F/4", StoreUrl((Address("a", 26379),), "sentinel", "m/", True, "", "p", 4)),
        ("rediss+cluster://u:p@a:1", StoreUrl((Address("a", 1),), "cluster", tls=True, username="u", password="p")),
        ("rediss://h?ssl_ca_certs=/c", StoreUrl((Address("h", 6379),), tls=True, options=(("ssl_ca_certs", "/c"),))),
    ],
)
def test_url(text, expected):
    assert StoreUrl.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unknown scheme"),
        ("disk", "unknown scheme"),
        ("http://h", "unknown scheme"),
        ("redis://", "invalid host or port"),
        ("redis://:6379", "invalid host or port"),
        ("redis://h:70000", "invalid host or port"),
        ("redis://h:0", "invalid host or port"),
        ("redis://[::1", "malformed URL"),
        ("redis://a,b", "several hosts without +sentinel or +cluster"),
        ("redis+cluster://a,,b", "invalid host or port"),
        ("redis+sentinel://a", "Sentinels need the name of a service"),
        ("redis+sentinel://a/m/x", "invalid database number"),
        ("redis+other://a", "unknown scheme"),
        ("redis+cluster://a/1", "a cluster has database 0 only"),
        ("redis://h/x", "invalid database number"),
        ("redis://h?ssl_ca_certs=x", "option 'ssl_ca_certs' without TLS"),
        ("rediss://h?socket_timeout=1", "unknown option 'socket_timeout'"),
    ],
)
def test_invalid_url(text, reason):
    with pytest.raises(ConfigurationError) as caught:
        StoreUrl.parse(text)
    assert str(caught.value).startswith(f"invalid store {text!r}: {reason}")
    assert "expected 'memory', redis://HOST:PORT/DATABASE" in str(caught.value)


@pytest.mark.parametrize("text", ["redis://me:hidden@h:x", "reddis://:hidden@h", "redis://:hidden@a,b"])
def test_errors_do_not_repeat_a_password(text):
    with pytest.raises(ConfigurationError) as caught:
        StoreUrl.parse(text)
    assert "hidden" not in str(caught.value)


def test_configuration_names_the_key():
    with pytest.raises(ConfigurationError, match=r"^.*master\.store: invalid store 'disk': unknown scheme"):
        parse('[master]\nstore = "disk"\n')
