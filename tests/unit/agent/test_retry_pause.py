import pytest

from headgate.agent.retry_pause import retry_pause


@pytest.mark.parametrize("status", [500, 503, 509])
@pytest.mark.parametrize(
    ("retries", "shortest", "longest"), [(0, 0.5, 1.0), (1, 1.0, 2.0), (2, 2.0, 4.0), (10, 512.0, 1024.0)]
)
def test_a_pause_is_half_a_second_to_one_and_doubles(status, retries, shortest, longest):
    assert retry_pause(status, retries=retries, draw=0.0) == shortest
    assert retry_pause(status, retries=retries, draw=0.5) == (shortest + longest) / 2
    assert shortest < retry_pause(status, retries=retries, draw=0.999) < longest


def test_it_is_at_least_a_second_after_429_and_has_jitter_there_too():
    assert [retry_pause(429, retries=retries, draw=0.0) for retries in range(3)] == [1.0, 2.0, 4.0]
    assert [retry_pause(429, retries=retries, draw=0.5) for retries in range(3)] == [1.5, 3.0, 6.0]


@pytest.mark.parametrize("retries", [11, 5_000])
def test_it_grows_no_more_after_ten_doublings(retries):
    assert retry_pause(503, retries=retries, draw=0.0) == 512.0
