import pytest

from headgate.limit import Domain, Rule
from headgate.store import library
from headgate.store.library import DomainFunctions, pack_doubles, unpack_doubles

RULE = Rule.parse("10/s burst 20")


def functions(name="api", rules=(RULE,), algorithm="log", longest=10.0):
    return DomainFunctions(Domain(name, rules, algorithm), longest)


@pytest.mark.parametrize(
    ("name", "identifier", "key"),
    [
        ("api", b"10.0.0.1", b"headgate:{api;10.0.0.1}"),
        ("api", b"a;b}{\0\xff", b"headgate:{api;a;b}{\0\xff}"),
        ("a;b", b"c", b"headgate:{a%3Bb;c}"),
        ("a{%}", b"c", b"headgate:{a%7B%25%7D;c}"),
        ("ä b\n", b"c", b"headgate:{%C3%A4%20b%0A;c}"),
        ("\udcff", b"c", b"headgate:{%FF;c}"),
        ("a", b";c", b"headgate:{a;;c}"),
    ],
)
def test_key(name, identifier, key):
    assert functions(name).key(identifier) == key


def test_keys_of_different_domains_and_identifiers_differ():
    names, identifiers = ["a", "a;", "a%3B", "a;b", "{a}", "a%"], [b"", b";", b"b", b"}", b"a}", b"b}{a;"]
    keys = {functions(name).key(identifier) for name in names for identifier in identifiers}
    assert len(keys) == len(names) * len(identifiers)


def test_fingerprint_depends_on_the_rules_and_the_algorithm_only():
    same = {functions(name, longest=longest).arguments[1] for name, longest in [("a", 1.0), ("b", 2.0)]}
    assert len(same) == 1
    others = [
        functions(rules=(Rule.parse("10/s burst 21"),)),
        functions(rules=(RULE, RULE)),
        functions(algorithm="gcra"),
    ]
    assert len(same | {other.arguments[1] for other in others}) == 4


def test_parameters_begin_with_the_longest_hold_and_the_life():
    assert unpack_doubles(functions(longest=7.5).arguments[2])[:2] == (7.5, RULE.window + 3_600)


def test_instants_of_smockron_are_milliseconds_and_holds_are_seconds():
    one = functions(algorithm="smockron")
    assert unpack_doubles(one.pack_records(library.RECORD, [1.0005])) == (1000.5,)
    assert unpack_doubles(one.pack_records(library.EXTEND, [1.0005])) == (1.0005,)


def test_doubles_are_little_endian():
    assert pack_doubles([1.0]) == bytes(6) + b"\xf0\x3f"


def test_names_contain_a_digest_of_the_code():
    assert library.CODE.startswith(f"#!lua name={library.NAME}\n")
    for function in (library.RECORD, library.EXTEND):
        assert f"'{function.decode()}'" in library.CODE
    assert "NAME_" not in library.CODE
