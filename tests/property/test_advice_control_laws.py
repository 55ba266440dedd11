"""Laws of computed traffic advice, for any arrivals, capacities and clocks."""

import math

from hypothesis import given
from hypothesis import strategies as st

from headgate.advice_control import HistoryLaw, LawSettings, document, share

STEPS = st.tuples(
    st.sampled_from(["polite", "*", None, "other"]),
    st.floats(0, 1e9),
    st.sampled_from([0.0, 1.0, 59.95, 60.0, 90.0, 700.0, -1.0, -1e6]),
    st.floats(0, 1e6),
    st.booleans(),
)


@given(st.lists(STEPS, max_size=60), st.sampled_from([0.0001, 0.01, 1.0]), st.booleans())
def test_what_is_published_is_valid_whatever_happens(
    steps: list[tuple[str | None, float, float, float, bool]], floor: float, monitor: bool
) -> None:
    law, now = HistoryLaw(LawSettings(("polite", "*"), floor=floor, monitor=monitor)), 0.0
    for name, count, seconds, capacity, frozen in steps:
        law.arrived(name, count)
        now += seconds
        before = law.entries
        entries = law.update(now=now, capacity=capacity, frozen=frozen)
        assert not frozen or entries == before
        document(entries)
        for entry, explanation in zip(entries, law.explain(), strict=True):
            assert entry.disallow or floor * 0.95 <= entry.fraction <= 1.0
            assert entry.disallow == (explanation.fraction == 0.0)
            assert 0.0 <= explanation.in_force <= 1.0 + 1e-9
            assert explanation.demand >= 0.0
            assert math.isfinite(explanation.demand)


NORMAL = {"allow_subnormal": False}  # half of the smallest number there is is nothing


@given(st.floats(-1e6, 1e6, **NORMAL), st.dictionaries(st.text(), st.floats(0, 1e9, **NORMAL), min_size=1))
def test_shares_are_max_min_fair(available: float, demands: dict[str, float]) -> None:
    shares = share(available, demands)
    total = sum(shares.values())
    assert total <= max(0.0, available) * (1 + 1e-9)
    assert all(0.0 <= shares[name] <= demands[name] for name in demands)
    unsatisfied = [shares[name] for name in demands if shares[name] < demands[name]]
    # Those that get less than they demand get as much as one another, and no other class gets more.
    for one in unsatisfied:
        assert one >= max(shares.values()) * (1 - 1e-9)


@given(st.permutations([("polite", 5.0), ("*", 700.0), (None, 3.0), ("*", 20.0), ("polite", 90.0)]))
def test_the_order_of_arrivals_does_not_matter(arrivals: list[tuple[str | None, float]]) -> None:
    law = HistoryLaw(LawSettings(("polite", "*")))
    law.update(now=0.0, capacity=10.0)
    for name, count in arrivals:
        law.arrived(name, count)
    assert [round(entry.wanted, 4) for entry in law.update(now=60.0, capacity=10.0)] == [1.0, 0.6722]
