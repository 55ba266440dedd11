import pytest

from headgate.limit import Domain, Rule
from headgate.store.master import BUCKETS, SharedDomain, bucket, pack_doubles, unpack_doubles

RULE = Rule.parse("10/s burst 20")


def shared(name="api", rules=(RULE,), algorithm="log", longest=10.0):
    return SharedDomain(Domain(name, rules, algorithm), longest)


@pytest.mark.parametrize(
    ("name", "identifier", "key"),
    [
        ("api", b"10.0.0.1", b"headgate:{api;%d}:10.0.0.1"),
        ("api", b"a;b}{\0\xff", b"headgate:{api;%d}:a;b}{\0\xff"),
        ("a;b!", b"c", b"headgate:{a%%3Bb!;%d}:c"),
        ("a{%}", b"c", b"headgate:{a%%7B%%25%%7D;%d}:c"),
        ("ä b\n", b"c", b"headgate:{%%C3%%A4%%20b%%0A;%d}:c"),
        ("\udcff", b"c", b"headgate:{%%FF;%d}:c"),
    ],
)
def test_key(name, identifier, key):
    assert shared(name).key(identifier) == key % bucket(identifier)


def test_keys_of_different_domains_and_identifiers_differ():
    names, identifiers = ["a", "a;", "a%3B", "a;b", "{a}", "a%"], [b"", b";", b"b", b"}", b"a}", b"b}{a;"]
    keys = {shared(name).key(identifier) for name in names for identifier in identifiers}
    assert len(keys) == len(names) * len(identifiers)


def test_fingerprint_depends_on_the_rules_and_the_algorithm_only():
    same = {shared(name, longest=longest).arguments[1] for name, longest in [("a", 1.0), ("b", 2.0)]}
    assert len(same) == 1
    others = [shared(rules=(Rule.parse("10/s burst 21"),)), shared(rules=(RULE, RULE)), shared(algorithm="gcra")]
    assert len(same | {other.arguments[1] for other in others}) == 4


def test_parameters_begin_with_the_longest_hold_and_the_life():
    assert unpack_doubles(shared(longest=7.5).arguments[2])[:2] == (7.5, RULE.window + 3_600)


def test_doubles_are_little_endian():
    assert pack_doubles([1.0]) == bytes(6) + b"\xf0\x3f"


def test_identifiers_are_spread_over_all_buckets():
    """One call to a cluster has the records of a bucket: fewer buckets make fewer calls, more a better distribution."""
    assert BUCKETS == 1_024
    assert {bucket(b"client-%d" % number) for number in range(20_000)} == set(range(BUCKETS))
