import pytest

from headgate.agent.advice.deadline import Deadline


def test_what_is_left_becomes_less_and_then_an_error():
    deadline = Deadline(0.05)
    left = deadline.left()
    assert 0 < left <= 0.05
    with pytest.raises(TimeoutError):  # noqa: PT012 - it is asked until it is over
        for _ in range(10_000_000):
            assert 0 < deadline.left() <= left
            left = deadline.left()


@pytest.mark.parametrize(("seconds", "said"), [(5.0, "not within 5 s"), (0.25, "not within 0.25 s")])
def test_it_says_how_long_it_was(seconds, said):
    assert str(Deadline(seconds)) == said


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_time_is_over_at_once(seconds):
    with pytest.raises(TimeoutError, match="not within"):
        Deadline(seconds).left()
