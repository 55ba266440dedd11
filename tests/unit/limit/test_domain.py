import pytest

from headgate.errors import ConfigurationError
from headgate.limit import Domain, Rule

RULE = Rule.parse("10/s")


@pytest.mark.parametrize("name", [None, 3, b"api", "", "a\0b", "x" * 255, "é" * 128])
def test_invalid_name_is_refused(name):
    with pytest.raises(ConfigurationError, match="invalid domain name"):
        Domain(name)


@pytest.mark.parametrize(
    ("field", "value"), [("algorithm", "leaky"), ("mode", "strict"), ("exempt", ("10.0.0.1/8",)), ("exempt", ("a/b",))]
)
def test_invalid_value_is_refused_with_domain_and_value(field, value):
    with pytest.raises(ConfigurationError, match="domain 'api'") as caught:
        Domain("api", **{field: value})
    assert (value if isinstance(value, str) else value[0]) in str(caught.value)


@pytest.mark.parametrize("rules", [("10/s",), "10/s", RULE, 3, None, [RULE, "10/s"]])
def test_rules_that_are_not_a_tuple_of_rules_are_refused(rules):
    with pytest.raises(ConfigurationError, match=r"^domain 'api': rules must be a tuple such as \(Rule.parse\('10/s"):
        Domain("api", rules)


def test_exempt_that_is_not_a_tuple_of_texts_is_refused():
    for exempt in ("partner", "10.0.0.0/8", 3, [3], None):
        with pytest.raises(ConfigurationError, match=r"^domain 'api': exempt must be a tuple such as"):
            Domain("api", exempt=exempt)


def test_lists_become_tuples():
    domain = Domain("api", [RULE], exempt=["partner"])
    assert (domain.rules, domain.exempt) == ((RULE,), ("partner",))
    assert hash(domain) == hash(Domain("api", (RULE,), exempt=("partner",)))


IDENTIFIERS = [
    (b"partner", True),
    (b"partners", False),
    (b"10.1.2.3", True),
    (b"11.1.2.3", False),
    (b"2001:db8:1:2::/64", True),
    (b"2001:db8::/16", False),
    (b"10.1.2.3.4", False),
    (b"\xff\xfe", False),
    (b"", False),
]


def test_exempt_identifiers_and_networks():
    for identifier, exempt in IDENTIFIERS:
        domain = Domain("api", exempt=("partner", "10.0.0.0/8", "2001:db8::/32"))
        assert domain.exempts(identifier) is exempt, identifier


def test_no_identifier_is_exempt_by_default():
    assert not Domain("api").exempts(b"10.0.0.1")


@pytest.mark.parametrize(
    ("rules", "options", "warned"),
    [
        (["1/d"], {"algorithm": "log"}, True),
        (["500/s"], {"algorithm": "smockron"}, False),
        (["500/s"], {}, False),
        ([], {"algorithm": "log"}, False),
    ],
)
def test_gatekeepers_cannot_share_a_rule_of_the_algorithm_log(rules, options, warned):
    domain = Domain("api", tuple(map(Rule.parse, rules)), **options)
    assert bool([*domain.warnings(shared=True)]) == warned
    assert domain.algorithm == options.get("algorithm", "gcra")


@pytest.mark.parametrize(("burst", "words"), [(10_000, ""), (10_001, "10001 timestamps of each client, up to 80 kB")])
def test_a_log_with_a_burst_above_10000_causes_a_warning(burst, words):
    """It keeps a timestamp for each request of a burst."""
    domain = Domain("api", (Rule.parse("1/s"), Rule(1, 1, burst)), "log")
    found = [*domain.warnings(shared=False)]
    assert words in "".join(found)
    assert bool(words) == bool(found)


def test_a_log_with_a_burst_above_1000000_is_refused():
    Domain("api", (Rule(1, 1, 1_000_000),), "log")
    for burst, size in ((1_000_001, 8), (2_000_000, 16)):
        with pytest.raises(ConfigurationError, match=f"stores {burst} timestamps of each client, {size} MB; use algo"):
            Domain("api", (Rule(1, 1, burst),), "log")
    for algorithm in ("gcra", "smockron"):
        assert [*Domain("api", (Rule.parse("999999999/s"),), algorithm).warnings(shared=True)] == []
