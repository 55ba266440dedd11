import pytest

from headgate.errors import ConfigurationError
from headgate.limit import Domain, Rule


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 255, "é" * 128])
def test_a_name_must_fit_a_frame_and_have_no_nul(name):
    with pytest.raises(ConfigurationError, match="invalid domain name"):
        Domain(name)


@pytest.mark.parametrize(
    ("field", "value"), [("algorithm", "leaky"), ("mode", "strict"), ("exempt", ("10.0.0.1/8",)), ("exempt", ("a/b",))]
)
def test_words_that_mean_nothing_are_refused_with_the_domain_and_the_word(field, value):
    with pytest.raises(ConfigurationError, match="domain 'api'") as caught:
        Domain("api", **{field: value})
    assert (value if isinstance(value, str) else value[0]) in str(caught.value)


@pytest.mark.parametrize(
    ("identifier", "exempt"),
    [
        (b"partner", True),
        (b"partners", False),
        (b"10.1.2.3", True),
        (b"11.1.2.3", False),
        (b"2001:db8:1:2::/64", True),
        (b"2001:db8::/16", False),
        (b"10.1.2.3.4", False),
        (b"\xff\xfe", False),
        (b"", False),
    ],
)
def test_exempt_identifiers_and_networks(identifier, exempt):
    domain = Domain("api", exempt=("partner", "10.0.0.0/8", "2001:db8::/32"))
    assert domain.exempts(identifier) is exempt


def test_without_exempt_entries_nobody_is_exempt():
    assert not Domain("api").exempts(b"10.0.0.1")


class TestLongLogs:
    """The algorithm log keeps a timestamp for each request of a burst."""

    @pytest.mark.parametrize(
        ("burst", "words"), [(10_000, ""), (10_001, "10001 timestamps of each client, up to 80 kB")]
    )
    def test_one_above_ten_thousand_is_warned_of(self, burst, words):
        domain = Domain("api", (Rule.parse("1/s"), Rule(1, 1, burst)))
        assert words in domain.warning
        assert bool(words) == bool(domain.warning)

    def test_one_above_a_million_is_refused(self):
        assert Domain("api", (Rule.parse("1000000/d"),)).warning
        with pytest.raises(
            ConfigurationError, match="stores 2000000 timestamps of each client, 16 MB; use algorithm gcra"
        ):
            Domain("api", (Rule.parse("2000000/d"),))
        with pytest.raises(ConfigurationError):
            Domain("api", (Rule(1, 1, 1_000_001),))

    @pytest.mark.parametrize("algorithm", ["gcra", "smockron"])
    def test_the_other_algorithms_take_any(self, algorithm):
        assert Domain("api", (Rule.parse("999999999/s"),), algorithm).warning == ""
