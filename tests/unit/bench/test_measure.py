import pytest

from bench.measure import Comparison, Row, Void, compare, verify


@pytest.mark.parametrize(
    ("ratio", "bound", "reached"),
    [(1.9, "≤", True), (2.0, "≤", True), (2.1, "≤", False), (1.9, "≥", False), (2.0, "≥", True), (2.1, "≥", True)],
)
def test_a_row_knows_whether_its_bound_is_reached(ratio, bound, reached) -> None:
    assert Row("gateway", "nginx", ratio, bound, 2.0, "12 µs").reached is reached


def test_the_sides_alternate_and_the_ratio_is_the_median_of_the_rounds() -> None:
    turns: list[str] = []
    ours = iter([1.0, 8.0, 30.0])
    peers = iter([1.0, 4.0, 10.0])

    def mine() -> float:
        turns.append("ours")
        return next(ours)

    def theirs() -> float:
        turns.append("peer")
        return next(peers)

    assert compare(mine, theirs, rounds=3) == Comparison(ours=8.0, peer=4.0, ratio=2.0)
    assert turns == ["ours", "peer", "peer", "ours", "ours", "peer"]


def test_a_wrong_result_is_void_and_printed() -> None:
    verify("the master counted all", right=True)
    with pytest.raises(Void, match="the master counted all"):
        verify("the master counted all", right=False)
