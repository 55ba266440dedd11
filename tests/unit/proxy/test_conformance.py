from collections import Counter

import pytest

from headgate.config.proxy_section import Proxy
from headgate.proxy.conformance import conforms, requirements

FIT = Proxy(token_keys=("key.json",), geofeed="geofeed.csv")


def missing(proxy):
    return [(row.section, row.level, row.words) for row in requirements(proxy) if not row.is_met]


def test_the_defaults_do_not_conform():
    rows = requirements(Proxy())
    assert not conforms(rows)
    assert Counter((row.section, row.level) for row in rows if not row.is_met) == {
        ("2.3", "STEP"): 1, ("3.1", "MUST"): 1, ("3.2", "MUST"): 1, ("3.1", "RECOMMENDED"): 5,
    }  # fmt: skip
    assert all(row.how for row in rows)


def test_a_configuration_can_conform():
    assert conforms(requirements(FIT))
    proxy = Proxy(
        token_keys=("key.json",), geofeed="geofeed.csv", client_rate="10/s burst 20", byte_ratio=1, max_seconds=300
    )
    assert [words for _, _, words in missing(proxy)] == ["a blocklist of abusive addresses"]


@pytest.mark.parametrize(
    ("changed", "sections", "fit"),
    [
        ({"plaintext": True}, [("2.1", "MUST"), ("2.3", "MUST")], False),
        ({"token_keys": ()}, [("2.3", "STEP"), ("3.1", "MUST"), ("3.1", "RECOMMENDED")], False),
        ({"token_keys": (), "client_ca": "a.pem"}, [("2.3", "STEP"), ("3.1", "RECOMMENDED")], False),
        ({"geofeed": ""}, [("3.2", "MUST")], False),
        ({"log": "all"}, [("3.3", "SHOULD")], True),
        ({"log_client": True}, [("3.3", "SHOULD")], True),
        ({"min_freshness": 599.0}, [("3.4", "SHOULD")], True),
    ],
)
def test_each_requirement_depends_on_its_setting(changed, sections, fit):
    proxy = Proxy(**{"token_keys": ("key.json",), "geofeed": "geofeed.csv", **changed})
    more = [row for row in missing(proxy) if row not in missing(FIT)]
    assert [row[:2] for row in more] == sections
    assert conforms(requirements(proxy)) == fit


def test_the_explanation_names_the_setting():
    proxy = Proxy(
        token_keys=("a",), allow_hosts=("example.org",), brand="Toll", unreachable="permit", alpn=("h2",), max_tunnels=7
    )
    told = {row.words: row.how for row in requirements(proxy)}
    assert told["HTTP/1.1, HTTP/2 or HTTP/3 is supported"] == "HTTP/2"
    assert "with a token and to allowed hosts" in told["abuse is prevented, and the proxy is not a general anonymizer"]
    assert told['"fraction" and "disallow" are respected'].startswith(
        'for Toll, "prefetch-proxy" and "*"; an unreachable'
    )
    assert told["a limit to all connections together"].startswith("7 tunnels")
    assert {row.words: row.how for row in requirements(Proxy(plaintext=True))}[
        "HTTP/1.1, HTTP/2 or HTTP/3 is supported"
    ] == "HTTP/1.1"
