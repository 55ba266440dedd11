import math

import msgspec
import pytest

from headgate.advice import Entry
from headgate.errors import ConfigurationError


def test_an_entry_wants_all_traffic_unless_told() -> None:
    entry = Entry("*")
    assert (entry.disallow, entry.fraction) == (False, 1.0)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan, math.inf, -math.inf])
def test_a_fraction_that_agents_would_pass_over_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigurationError, match=r"advice\.fraction of 'prefetch-proxy'"):
        Entry("prefetch-proxy", fraction=fraction)


@pytest.mark.parametrize("user_agent", ["", "  "])
def test_an_entry_names_somebody(user_agent: str) -> None:
    with pytest.raises(ConfigurationError, match="user_agent is empty"):
        Entry(user_agent)


def test_configuration_reads_an_entry_and_refuses_unknown_keys() -> None:
    assert msgspec.convert({"user_agent": "*", "fraction": 0}, Entry) == Entry("*", fraction=0.0)
    with pytest.raises(msgspec.ValidationError, match="disalow"):
        msgspec.convert({"user_agent": "*", "disalow": True}, Entry)
