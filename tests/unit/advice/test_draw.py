"""Section 7: one draw, and what it is held against."""

import random

import pytest

from headgate.advice import permits
from headgate.advice.decision import DRAW_PERIOD, sticky_draw
from headgate.advice.parser import AdviceEntry

KEY = b"k" * 32
NOW = 2_833_334 * DRAW_PERIOD


@pytest.mark.parametrize(
    ("entry", "draw", "expected"),
    [
        (AdviceEntry(), 0.0, True),
        (AdviceEntry(), 1.0, True),
        (AdviceEntry(fraction=0.5), 0.5, True),
        (AdviceEntry(fraction=0.5), 0.5000000001, False),
        (AdviceEntry(fraction=0.0), 0.0, True),
        (AdviceEntry(fraction=0.0), 5e-324, False),
        (AdviceEntry(disallowed=True), 0.0, False),
        (AdviceEntry(disallowed=True, fraction=1.0), 0.0, False),
    ],
)
def test_a_draw_up_to_the_fraction_is_permitted(entry: AdviceEntry, draw: float, expected: bool) -> None:
    assert permits(entry, draw) is expected


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_fraction_results_in_that_part_of_the_traffic(fraction: float) -> None:
    """ "agents should aim for a fraction of 0.1 to result in approximately 10% of the traffic" """
    entry, chance, count = AdviceEntry(fraction=fraction), random.Random(7), 20_000
    assert abs(sum(permits(entry, chance.random()) for _ in range(count)) / count - fraction) < 0.01
    sticky = (sticky_draw(KEY, b"%d" % number, "https://example.com", now=0.0) for number in range(count))
    assert abs(sum(permits(entry, draw) for draw in sticky) / count - fraction) < 0.01


def test_a_sticky_draw_is_the_same_for_the_same_and_another_for_every_other() -> None:
    draw = sticky_draw(KEY, b"192.0.2.1", "https://example.com", now=NOW)
    assert draw == sticky_draw(KEY, b"192.0.2.1", "https://example.com", now=NOW)
    others = {
        sticky_draw(b"j" * 32, b"192.0.2.1", "https://example.com", now=NOW),
        sticky_draw(KEY, b"192.0.2.2", "https://example.com", now=NOW),
        sticky_draw(KEY, b"192.0.2.1", "https://example.org", now=NOW),
        sticky_draw(KEY, b"192.0.2.1", "https://example.com", now=NOW + DRAW_PERIOD),
        # Where one part ends and the next begins is part of what is said.
        sticky_draw(KEY, b"192.0.2.1h", "ttps://example.com", now=NOW),
        sticky_draw(KEY, b"192.0.2.1", "https://example.com28", now=33_334 * DRAW_PERIOD),
    }
    assert len(others | {draw}) == 7


def test_a_sticky_draw_is_the_same_for_ten_minutes() -> None:
    draws = [sticky_draw(KEY, b"192.0.2.1", "https://example.com", now=NOW + after) for after in range(-1, 601)]
    assert len(set(draws)) == 3
    assert len(set(draws[1:-1])) == 1


def test_a_sticky_draw_is_more_than_nothing_and_at_most_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed:
        def __init__(self, digest: bytes) -> None:
            self.digest = lambda: digest

    for digest, draw in ((b"\0" * 32, 2.0**-53), (b"\xff" * 32, 1.0)):
        monkeypatch.setattr("headgate.advice.decision.hmac.new", lambda *_, digest=digest: Fixed(digest))
        assert sticky_draw(KEY, b"", "", now=0.0) == draw
        assert not permits(AdviceEntry(fraction=0.0), draw)
        assert permits(AdviceEntry(fraction=1.0), draw)
