import pytest

from headgate.errors import ConfigurationError
from headgate.limit import Domain


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 255, "é" * 128])
def test_a_name_must_fit_a_frame_and_have_no_nul(name):
    with pytest.raises(ConfigurationError, match="no name of a domain"):
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
