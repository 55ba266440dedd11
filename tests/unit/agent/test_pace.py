"""The pace of requests to one origin, in simulated time, and through a courtesy."""

import asyncio
import heapq
import threading

import pytest

from headgate.agent import Courtesy, RetryLater
from headgate.agent.fork_hooks import FORK_HOOKS
from headgate.agent.pace import Pace
from headgate.agent.wait import FetchWait
from headgate.errors import ConfigurationError
from headgate.throttle import Policy
from headgate.throttle.fields import ThrottleFields

ORIGIN = "https://example.com"
URL = f"{ORIGIN}/path"
NOW = 1_000_000.0


def sent_at(pace, count, *, now=0.0, origin=ORIGIN):
    """Send requests one after the other as soon as they may be; return when."""
    pace, times = pace.of(origin) if isinstance(pace, Pace) else pace, []
    for number in range(count):
        while (turn := pace.enter(number, now=now)) is not None:
            assert turn.is_next
            now = turn.release
        times.append(round(now, 6))
        pace.leave(number)
    return times


def test_a_rate_spaces_requests_and_a_burst_comes_first():
    assert sent_at(Pace("2/s", None, 60), 4) == [0, 0.5, 1, 1.5]
    assert sent_at(Pace("1/s burst 3", None, 60), 5) == [0, 0, 0, 1, 2]
    pace = Pace("1/s", None, 60)
    assert sent_at(pace, 2) == [0, 1]
    assert sent_at(pace, 2, origin="https://other.example") == [0, 1]
    assert sent_at(pace, 2, now=-1000.0) == [-999, -998]  # the clock was set back


def test_requests_go_in_the_order_in_which_they_came():
    pace = Pace(None, 2, 60).of(ORIGIN)
    turns = {name: pace.enter(name, now=0.0) for name in "abcd"}
    assert [turn is None for turn in turns.values()] == [True, True, False, False]
    pace.leave("a")
    assert (turns["c"].ready.done(), turns["d"].ready.done()) == (True, False)
    assert pace.enter("e", now=0.0) is not None  # which does not overtake
    assert pace.enter("c", now=0.0) is None
    pace.leave("d")  # cancelled
    turn = pace.enter("e", now=0.0)
    pace.leave("b")
    assert turn.ready.done()
    assert pace.enter("e", now=0.0) is None


def entered(pace, names, *, now=0.0):
    """Return which requests may be sent."""
    return "".join(name for name in names if pace.enter(name, now=now) is None)


def test_requests_come_back_gradually_after_a_failure():
    pace = Pace(None, None, 60).of(ORIGIN)
    assert entered(pace, "abcdefgh") == "abcdefgh"
    pace.answered("down", sent=0.0, now=1.0)  # the bodies of the others may never end
    for _ in range(6):
        pace.answered("down", sent=0.0, now=2.0)  # together with the first: counts once
    assert entered(pace, "ijklmnopqrstuvw", now=3.0) == "i"
    pace.answered("down", sent=3.0, now=4.0)
    assert entered(pace, "jkl", now=5.0) == "j"
    pace.answered("unknown", sent=5.0, now=6.0)  # says nothing of the origin
    turn = pace.enter("l", now=7.0)
    assert entered(pace, "kl", now=7.0) == "k"
    pace.answered("up", sent=7.0, now=8.0)
    assert turn.ready.done()
    assert entered(pace, "lmnopqrstuvw", now=8.0) == "lm"
    for _ in "lm":
        pace.answered("up", sent=8.0, now=9.0)
    assert entered(pace, "nopqrstuvw", now=9.0) == "nopq"  # half of the eight at first
    for _ in "nopq":
        pace.answered("up", sent=9.0, now=10.0)
    pace.answered("down", sent=0.0, now=10.0)  # the last of the first, which has hung
    assert entered(pace, "rstuvwxyz", now=10.0) == "rstuv"  # from here, one more each round
    pace.answered("limiting", sent=10.0, now=11.0)
    for _ in "stuv":
        pace.answered("up", sent=10.0, now=12.0)  # sent before it, so the window does not grow
    assert entered(pace, "wxyz", now=13.0) == "wxy"  # more than half of five


def test_a_clock_that_is_set_back_after_a_failure_blocks_no_request():
    pace = Pace(None, None, 60).of(ORIGIN)
    assert entered(pace, "a", now=100.0) == "a"
    pace.answered("down", sent=100.0, now=101.0)
    for now in (1.0, 2.0, 3.0):
        assert entered(pace, "bcdefgh", now=now)
        pace.answered("up", sent=now, now=now)


def test_a_clock_that_is_set_back_shortens_no_wait_and_lengthens_none():
    pace = Pace("2/s burst 2", "adaptive", 60).of(ORIGIN)
    pace.learn(ThrottleFields(rate_limits=((2, 4.0),)), now=1000.0)
    assert sent_at(pace, 2, now=1000.0) == [1000, 1002]
    pace.answered("up", sent=1002.0, now=10.0)  # not a latency, and no part of a burst
    assert sent_at(pace, 4, now=10.0) == [12, 12, 12.5, 13]


def test_a_request_that_hangs_hardly_slows_an_adaptive_pace_and_a_standing_clock_does_not():
    pace = Pace("1/s", "adaptive", 60).of(ORIGIN)
    pace.answered("up", sent=0.0, now=0.0)
    for now in range(1, 9):
        pace.answered("up", sent=now, now=now + 0.1)
    pace.answered("up", sent=9.0, now=3609.0)
    assert sent_at(pace, 2, now=4000.0)[1] < 4004


def test_the_first_request_of_a_burst_counts_when_it_arrives():
    pace = Pace("10/s burst 2", None, 60).of(ORIGIN)
    assert entered(pace, "ab", now=1.0) == "ab"
    pace.answered("up", sent=1.0, now=1.25)
    pace.answered("up", sent=1.0, now=5.0)  # once
    assert pace.release(now=1.25) == pytest.approx(1.35)
    assert sent_at(pace, 3, now=1.35) == [1.35, 1.45, 1.55]
    assert entered(pace, "cd", now=9.0) == "cd"
    pace.answered("up", sent=9.0, now=2.0)  # the clock was set back
    assert pace.release(now=2.0) == pytest.approx(2.1)


def test_rate_limit_fields_spread_what_remains():
    pace = Pace(None, None, 60)
    pace.of(ORIGIN).learn(ThrottleFields(rate_limits=((5, 10.0), (100, 50.0))), now=0.0)
    assert sent_at(pace, 4) == [0, 2, 4, 6]
    assert sent_at(pace, 2, now=10.0) == [10, 10]  # the window is over
    pace.of(ORIGIN).learn(ThrottleFields(rate_limits=((0, 1.0),), quotas=((3, 3.0),)), now=20.0)
    assert sent_at(pace, 3, now=20.0) == [20, 21, 22]
    pace.of(ORIGIN).learn(ThrottleFields(rate_limits=((1, 3600.0),)), now=30.0)
    assert sent_at(pace, 2, now=30.0) == [82, 142]
    pace.of(ORIGIN).delay = 7.0
    assert sent_at(pace, 3, now=10_000.0) == [10_000, 10_007, 10_014]


def test_origins_are_bounded(monkeypatch):
    monkeypatch.setattr("headgate.agent.pace._MAX_ORIGINS", 3)
    pace = Pace(None, 1, 60)
    for number in range(9):
        assert pace.of(f"https://{number}.example").enter("a", now=0.0) is None
        pace.of(f"https://{number}.example").leave("a")
    assert len(pace._origins) == 3
    assert pace.of(f"{ORIGIN}:1").enter("hangs", now=0.0) is None
    for number in range(9):
        pace.of(f"https://{number}.example")
    assert len(pace._origins) == 3
    assert pace.of(f"{ORIGIN}:1").enter("b", now=0.0) is not None


def simulate(pace, latency_at, seconds, workers):
    """Return when each response came, of workers that send as soon as they may; `latency_at` is of the instant."""
    now, events, done = 0.0, [(0.0, worker, None) for worker in range(workers)], []
    while events and now < seconds:
        now, worker, sent = heapq.heappop(events)
        if sent is not None:
            pace.answered("up", sent=sent, now=now)
            pace.leave(worker)
            done.append(now)
        turn = pace.enter(worker, now=now)
        if turn is None:
            heapq.heappush(events, (now + latency_at(now), worker, now))
        else:
            heapq.heappush(events, (max(turn.release, now + 0.001), worker, None))
    return done


@pytest.mark.parametrize(("rate", "workers"), [(None, 1), (None, 8), ("5/s", 1), ("20/s", 8)])
def test_an_adaptive_pace_slows_down_with_the_origin_and_recovers(rate, workers):
    done = simulate(Pace(rate, "adaptive", 60).of(ORIGIN), lambda now: 0.2 if 30 <= now < 60 else 0.1, 120, workers)

    def speed(start, count):
        times = [instant for instant in done if instant >= start][: count + 1]
        return count / (times[-1] - times[0])

    before = speed(20, 20)
    assert speed(next(t for n, t in enumerate(done) if t >= 30.2 and n) + 10 / before, 10) <= 0.6 * before
    assert speed(119 - 10 / before, 5) >= 0.9 * before


def test_invalid_paces_are_refused():
    for concurrency in (0, "fast"):
        with pytest.raises(ConfigurationError, match=f"must be at least 1, or 'adaptive', got {concurrency!r}"):
            Courtesy(concurrency=concurrency)
    with pytest.raises(ConfigurationError, match="invalid rule 'fast'"):
        Courtesy(rate="fast")


def test_a_request_waits_for_its_turn_or_is_refused():
    now = [NOW]
    courtesy = Courtesy(rate="1/min", clock=lambda: now[0])
    first, second = courtesy.attempt("GET", URL), courtesy.attempt("GET", URL)
    assert first.wait() is None
    assert first.received(200, {})
    assert second.wait().seconds == 60
    now[0] += 60
    assert second.wait() is None
    assert courtesy.counters == {"sent": 1, "answered": 1, "waits": 1}
    impatient = Courtesy(rate="1/min", wait=30, clock=lambda: now[0])
    assert impatient.attempt("GET", URL).wait() is None
    with pytest.raises(RetryLater) as caught:
        impatient.attempt("GET", URL).wait()
    assert (caught.value.reason, caught.value.release_time, caught.value.target) == ("pace", NOW + 120, ORIGIN)


@pytest.mark.parametrize("moves", [[0], [0, -1000, 30]])
def test_until_when_others_are_in_flight_is_unknown(moves):
    now = [NOW]
    courtesy = Courtesy(concurrency=1, wait=30 if moves[1:] else 0, clock=lambda: now[0])
    attempts = [courtesy.attempt("GET", URL) for _ in range(2)]
    assert attempts[0].wait() is None
    for move in moves[:-1]:
        now[0] += move
        assert attempts[1].wait().seconds == 30
    now[0] += moves[-1]
    with pytest.raises(RetryLater) as caught:
        attempts[1].wait()
    assert (caught.value.reason, caught.value.release_time) == ("pace", now[0] + 1)


def test_a_held_request_leaves_the_queue():
    now = [NOW]
    courtesy = Courtesy(concurrency=1, wait=100, clock=lambda: now[0], policy=Policy.draft())
    first, second, third = (courtesy.attempt("GET", f"{URL}/{number}") for number in range(3))
    assert first.wait() is None
    assert (second.wait() is None, third.wait() is None) == (False, False)
    courtesy.observe(f"{URL}/1", 200, {"Retry-After": "50"})
    first.received(200, {})
    assert second.wait().seconds == 50
    assert third.wait() is None


def test_threads_and_event_loops_share_a_concurrency_and_cancelled_tasks_give_up_their_places():
    courtesy, in_flight, most = Courtesy(concurrency=2), [], []

    async def use(settle):
        attempt = courtesy.attempt("GET", URL)
        try:
            while (wait := attempt.wait()) is not None:
                await settle(wait)
            in_flight.append(1)
            most.append(len(in_flight))
            await asyncio.sleep(0.002)
            in_flight.pop()
        finally:
            attempt.lost()

    async def main():
        tasks = [asyncio.create_task(use(FetchWait.settle)) for _ in range(8)]
        await asyncio.sleep(0)
        for task in tasks[2::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def block(wait):
        wait.block()

    works = [*(main() for _ in range(3)), *(use(block) for _ in range(5))]
    threads = [threading.Thread(target=asyncio.run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(most) >= 20, max(most), courtesy.attempt("GET", URL).wait()) == (True, 2, None)


def test_a_child_process_keeps_what_is_known_and_has_no_requests():
    courtesy = Courtesy(rate="2/min burst 2", concurrency=1, clock=lambda: NOW)
    courtesy._state.pace.of(ORIGIN).delay = 7.0
    parents = courtesy.attempt("GET", URL)
    assert parents.wait() is None
    FORK_HOOKS.after(is_child=True)
    child = courtesy.attempt("GET", URL)  # also of a fork before which no hook was called
    assert child.wait().seconds == 7
    courtesy._state.pace.of(ORIGIN).delay = 0.0
    assert child.wait() is None
    parents.ended()  # such as by the garbage collector
    assert isinstance(courtesy.attempt("GET", URL).wait(), FetchWait)


def test_explain_says_when_the_pace_lets_the_next_request_go():
    courtesy = Courtesy(rate="1/min", clock=lambda: NOW)
    assert courtesy.explain(URL).reason == "free"
    courtesy.attempt("GET", URL).wait()
    assert str(courtesy.explain(URL)) == f"{ORIGIN}: held, for 60.000 s more: the pace of this agent"
