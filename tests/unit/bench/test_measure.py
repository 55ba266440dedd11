from functools import partial

import pytest

from bench.measure import Row, Void, compared, in_turns, verify


@pytest.mark.parametrize(
    ("ratio", "bound", "reached"),
    [(1.9, "≤", True), (2.0, "≤", True), (2.1, "≤", False), (1.9, "≥", False), (2.0, "≥", True), (2.1, "≥", True)],
)
def test_a_row_knows_whether_its_bound_is_reached(ratio, bound, reached) -> None:
    assert Row("gateway", "nginx", ratio, bound, 2.0, "12 µs").reached is reached


def test_the_sides_alternate_and_the_ratio_is_the_median_of_the_rounds() -> None:
    turns: list[str] = []
    figures = {"ours": iter([1.0, 8.0, 30.0]), "peer": iter([1.0, 4.0, 10.0])}

    def figure(name: str) -> float:
        turns.append(name)
        return next(figures[name])

    found = in_turns({name: partial(figure, name) for name in figures}, 3)
    assert turns == ["ours", "peer", "peer", "ours", "ours", "peer"]
    row = compared("requests", found["ours"], ("≤", 2.5), ("nginx", found["peer"]), "µs")
    assert row == Row("requests", "nginx", 2.0, "≤", 2.5, "8.0 µs against 4.0 µs")


def test_a_wrong_result_is_void_and_printed() -> None:
    verify("the master counted all", right=True)
    with pytest.raises(Void, match="the master counted all"):
        verify("the master counted all", right=False)
