"""Twenty-five parallel calls of an SDK and an outage of two seconds, in simulated time."""

import heapq
import itertools
import random

import pytest

from headgate.agent import Courtesy, RetryLater
from headgate.agent.wait import Pause

OUTAGE = 2.0


def answers(kind, *, repeats=True, **options):  # noqa: C901 - a small simulator
    """Return when each caller is answered; one that is refused, or gets an error, asks again when it may."""
    chance, now, order = random.Random(1), [0.0], itertools.count()
    courtesy = Courtesy(clock=lambda: now[0], draw=chance.random, **options)
    events = [(chance.random() / 100, next(order), "ask", caller, None) for caller in range(25)]
    heapq.heapify(events)
    answered = []

    def later(seconds, what, caller, attempt):
        heapq.heappush(events, (now[0] + seconds, next(order), what, caller, attempt))

    def go_on(caller, attempt):
        try:
            wait = attempt.wait()
        except RetryLater as held:
            later(held.release_time - now[0], "ask", caller, None)
            return
        if wait is None:
            later(0.01, "answer", caller, attempt)
        else:  # a wait for another request ends with that
            assert now[0] < 100
            later(wait.seconds if isinstance(wait, Pause) else min(wait.seconds, 0.01), "go on", caller, attempt)

    while events:
        now[0], _, what, caller, attempt = heapq.heappop(events)
        if what == "ask":
            go_on(caller, courtesy.attempt("GET", f"https://example.com/{caller}"))
        elif what == "go on":
            go_on(caller, attempt)
        else:
            is_down = now[0] < OUTAGE
            if kind == "refused" and is_down:
                is_final = attempt.lost(OSError(), "unsent")
            else:
                fields = {"Retry-After": "2"} if kind == "Retry-After" else {}
                is_final = attempt.received(503 if is_down else 200, fields if is_down else {})
            if not is_final:
                go_on(caller, attempt)
            elif is_down and repeats:
                later(0.5, "ask", caller, None)
            elif is_down:
                continue
            else:
                answered.append(now[0])
    return answered, courtesy.counters["sent"]


@pytest.mark.parametrize("options", [{}, {"retry": 3}, {"retry": 3, "wait": True}])
@pytest.mark.parametrize("kind", ["503", "Retry-After", "refused"])
def test_everything_is_answered_within_ten_seconds_of_the_recovery(kind, options):
    answered, sent = answers(kind, **options)
    assert len(answered) == 25
    assert max(answered) < OUTAGE + 10
    assert sent < 150


@pytest.mark.parametrize("kind", ["503", "Retry-After", "refused"])
def test_retries_that_wait_need_no_caller_that_repeats(kind):
    answered, sent = answers(kind, repeats=False, retry=4, wait=True)
    assert len(answered) == 25
    assert max(answered) < OUTAGE + 10
    assert sent < 150
