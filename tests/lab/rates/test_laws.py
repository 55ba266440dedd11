import pytest

from headgate.advice_control import Entry, LawSettings
from lab.rates.laws import LAWS

NOW = 1_700_000_000.0
SETTINGS = LawSettings(("a", "*"))


def after(law, *loads, capacity=100.0):
    """Return what a law publishes after periods with these numbers of requests per second."""
    law.update(now=NOW, capacity=capacity)
    for number, load in enumerate(loads, start=1):
        law.arrived("a", load * 30)
        law.arrived(None, load * 30)
        entries = law.update(now=NOW + 60 * number, capacity=capacity)
    return [entry.fraction for entry in entries]


@pytest.mark.parametrize(
    ("loads", "capacity", "fraction"),
    [
        ([194], 100.0, 0.5),
        ([97], 50.0, 0.5),
        ([194, 40], 100.0, 1.0),
        ([194, 194], 100.0, 0.25),
        ([1_000_000], 100.0, 0.001),
        ([194, 0], 100.0, 1.0),
    ],
)
def test_naive_law_publishes_one_fraction_for_all_classes(loads, capacity, fraction):
    assert after(LAWS["ratio"](SETTINGS), *loads, capacity=capacity) == [pytest.approx(fraction)] * 2


def test_naive_law_waits_for_the_end_of_its_period():
    law = LAWS["ratio"](SETTINGS)
    law.update(now=NOW, capacity=100.0)
    law.arrived("*", 1_000_000)
    assert law.update(now=NOW + 59, capacity=100.0) == (Entry("a"), Entry("*"))


def test_naive_law_starts_with_the_entries_of_another():
    law = LAWS["ratio"](SETTINGS, start=[Entry("a", fraction=0.25), Entry("*", fraction=0.25)])
    assert law.entries == (Entry("a", fraction=0.25), Entry("*", fraction=0.25))
    assert after(law, 194) == [0.125, 0.125]
