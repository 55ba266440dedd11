"""One fetch for an origin, however many ask, and whoever of them goes."""

import asyncio
import threading

import pytest

from headgate.advice import AgentIdentity
from headgate.advice.answer import Advice
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.agent.asking import Asking
from headgate.agent.wait import Flight

ORIGIN = "https://example.com"
HALF = AdviceResponse(200, [("Content-Type", "application/trafficadvice+json")], b'[{"user_agent":"*","fraction":0.5}]')


class Post:
    """Takes what is to be fetched, and brings the answers when the test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, object]] = []
        self.now = 1000.0
        self.told: list[Advice] = []

    def begin(self, request, *, done):
        self.begun.append((request.url, done))

    def land(self, response, which=-1):
        self.begun[which][1](response)

    def asking(self, **options) -> Asking:
        return Asking(
            AgentIdentity(["ExampleBot", "*"]),
            clock=lambda: self.now,
            told=self.told.append,
            begin_fetch=self.begin,
            **options,
        )


@pytest.fixture
def post():
    return Post()


def test_whoever_asks_first_begins_the_fetch_and_all_wait_for_the_same(post):
    asking = post.asking()
    first, *others = [asking.ask(ORIGIN, now=1000.0) for _ in range(100)]
    assert [url for url, _ in post.begun] == ["https://example.com/.well-known/traffic-advice"]
    assert all(isinstance(flight, Flight) for flight in (first, *others))
    post.land(HALF)
    for flight in (first, *others):
        flight.block()
    advice = asking.ask(ORIGIN, now=1000.0)
    assert isinstance(advice, Advice)
    assert advice.entry.fraction == 0.5
    assert len(post.begun) == 1
    assert post.told == [advice]


def test_a_hundred_threads_at_once_make_one_fetch(post):
    asking = post.asking()
    together = threading.Barrier(100)
    got: list[object] = []

    def ask() -> None:
        together.wait(10)
        answer = asking.ask(ORIGIN, now=1000.0)
        if isinstance(answer, Flight):
            answer.block()
            answer = asking.ask(ORIGIN, now=1000.0)
        got.append(answer)

    threads = [threading.Thread(target=ask) for _ in range(100)]
    for thread in threads:
        thread.start()
    for _ in range(1000):
        if post.begun:
            break
        threading.Event().wait(0.01)
    post.land(HALF)
    for thread in threads:
        thread.join(10)
    assert len(post.begun) == 1
    assert len(got) == 100
    assert all(isinstance(answer, Advice) and answer.entry.fraction == 0.5 for answer in got)


def test_a_fetch_that_never_lands_is_waited_for_no_longer_than_a_fetch_may_take(post):
    asking = post.asking()
    asking.ask(ORIGIN, now=1000.0)
    later = asking.ask(ORIGIN, now=1005.99)
    assert isinstance(later, Flight)
    later.block()  # a hundredth of a second at most
    advice = asking.ask(ORIGIN, now=1006.0)
    assert isinstance(advice, Advice)
    assert advice.entry is None


def test_what_lands_late_counts_and_hurts_nobody(post):
    asking = post.asking()
    asking.ask(ORIGIN, now=1000.0)
    asking.ask(ORIGIN, now=1006.0)  # taken for failed
    asking.ask(ORIGIN, now=1070.0)  # the next
    post.now = 1070.5
    post.land(HALF, 0)
    waiting = asking.ask(ORIGIN, now=1070.6)
    assert isinstance(waiting, Advice)
    assert waiting.entry.fraction == 0.5
    post.land(NETWORK_ERROR, 1)
    assert len(post.begun) == 2


def test_whoever_waits_is_let_go_even_if_telling_fails(post):
    asking = post.asking()
    flight = asking.ask(ORIGIN, now=1000.0)
    post.told = None
    asking._told = lambda advice: 1 / 0
    with pytest.raises(ZeroDivisionError):
        post.land(HALF)
    flight.block()
    assert flight._landed.done()


def test_one_that_stops_waiting_leaves_the_others_their_answer(post):
    asking = post.asking()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asking.ask(ORIGIN, now=1000.0).settle(), 0.01)

    asyncio.run(give_up())
    flight = asking.ask(ORIGIN, now=1000.0)
    post.land(HALF)
    flight.block()
    assert flight._landed.done()
    assert not flight._landed.cancelled()


def test_nothing_is_kept_of_a_fetch_that_landed(post):
    asking = post.asking()
    for number in range(10):
        asking.ask(f"https://{number}.example.com", now=1000.0)
        post.land(HALF)
    assert asking._flights == {}


def test_what_may_not_be_asked_is_answered_at_once(post):
    advice = post.asking().ask("http://example.com", now=1000.0)
    assert isinstance(advice, Advice)
    assert advice.result is None
    assert post.begun == []


def test_what_is_known_is_given_without_asking(post):
    asking = post.asking()
    assert asking.known(ORIGIN, now=1000.0) is None
    assert post.begun == []
    asking.ask(ORIGIN, now=1000.0)
    post.land(HALF)
    assert asking.known(ORIGIN, now=1001.0).entry.fraction == 0.5
    assert asking.known(ORIGIN, now=1e9) is None


def test_what_is_under_way_at_a_fork_lands_in_the_parent_and_is_fetched_anew_in_the_child(post):
    parent, child = post.asking(), post.asking()
    for asking in (parent, child):
        asking.ask(ORIGIN, now=1000.0)
        asking.pause()
    parent.resume(is_child=False)
    child.resume(is_child=True)
    for asking, fetches in ((parent, 2), (child, 3)):
        assert isinstance(asking.ask(ORIGIN, now=1000.0), Flight)
        assert len(post.begun) == fetches
    for which in (0, 2):
        post.land(HALF, which)
    for asking in (parent, child):
        assert asking.ask(ORIGIN, now=1000.0).entry.fraction == 0.5


def test_a_child_that_nobody_announced_asks_too(post):
    asking = post.asking()
    asking.resume(is_child=True)
    assert isinstance(asking.ask(ORIGIN, now=1000.0), Flight)
