"""Places at an origin: each way an exchange can end gives its place back once, and slow clients hold none."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings, Decision, Outcome
from headgate.origin.gateway.places import PATIENCE, OriginPlaces, Place, QueuedRequest
from headgate.origin.gateway.states import PLACE_TRANSITIONS, PlaceEvent, PlaceState
from tests.unit.origin.gateway.test_exchange import HEAD, POST, RESPONSE, Harness, request, turns

UPGRADE = b"Connection: Upgrade", b"Upgrade: websocket"
SWITCH = b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
STREAM_FIRST = b"HTTP/1.1 200 OK\r\ncontent-type:Text/Event-Stream\r\n\r\n"
OTHERS = b"HTTP/1.1 200 OK\r\nX-Content-Type: text/event-stream\r\nContent-Type: text/event-streams\r\n\r\n"
REQUEST = parse_request_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLimits())


class RecordedPlaces(OriginPlaces):
    """Places by a clock that is set by hand; records what is given back."""

    def __init__(self, limit: int = 1, queue: int = 10) -> None:
        self.now = 50.0
        self.ended: list[tuple[str, float, Outcome]] = []
        super().__init__(ConcurrencySettings(max=limit, queue=queue), draw=lambda: 0.5, clock=lambda: self.now)

    def end(self, place: Place, latency: float, outcome: Outcome, *, now: float) -> None:
        self.ended.append((place.domain, latency, outcome))
        super().end(place, latency, outcome, now=now)

    def take_place(self) -> Place:
        place = self.take("api")
        assert place is not None
        return place

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.tick(self.now, 0.0)


def started(
    *fields: Any, line: bytes = b"GET / HTTP/1.1", pooled: bool = True, ago: float = 2.0
) -> tuple[RecordedPlaces, Harness]:
    """Start an exchange with a place, so many seconds ago."""
    places = RecordedPlaces()
    harness = Harness(request(line, *fields), pooled=pooled, place=places.take_place())
    harness.exchange.start(HEAD)
    places.now += ago
    return places, harness


def lose(harness: Harness, *, reused: bool = True) -> None:
    harness.upstream.reused = reused
    harness.upstream.connection_lost(None)


ENDS: dict[str, tuple[Outcome, Callable[[Harness], object]]] = {
    "a whole response": (Outcome.ANSWERED, lambda one: one.upstream.data_received(RESPONSE)),
    "the client has left": (Outcome.UNKNOWN, lambda one: one.exchange.abandon()),
    "the origin closes": (Outcome.UNKNOWN, lambda one: lose(one, reused=False)),
    "the origin sends garbage": (Outcome.UNKNOWN, lambda one: one.upstream.data_received(b"garbage\r\n\r\n")),
    "a timeout": (Outcome.TIMED_OUT, lambda one: one.exchange.time_out()),
    "an event stream": (Outcome.ANSWERED, lambda one: one.upstream.data_received(STREAM)),
    "its type comes first": (Outcome.ANSWERED, lambda one: one.upstream.data_received(STREAM_FIRST)),
}


@pytest.mark.parametrize("end", ENDS)
def test_each_end_gives_the_place_back_once(end: str) -> None:
    places, harness = started()
    outcome, act = ENDS[end]
    act(harness)
    assert places.ended == [("api", 2.0, outcome)]
    harness.exchange.abandon()
    harness.exchange.abandon()
    assert len(places.ended) == 1
    assert places.state.in_flight == 0


def test_a_tunnel_has_no_place() -> None:
    places, harness = started(*UPGRADE)
    harness.upstream.data_received(SWITCH)
    assert harness.client.calls[0][0] == "tunnel"
    assert places.ended == [("api", 2.0, Outcome.UNKNOWN)]


def test_a_response_with_a_similar_type_keeps_its_place() -> None:
    places, harness = started()
    harness.upstream.data_received(OTHERS)
    assert places.ended == []


@pytest.mark.parametrize("end", [b"i", None])
def test_the_latency_ends_with_the_head_of_the_response(end: bytes | None) -> None:
    places, harness = started()
    harness.upstream.data_received(RESPONSE[:-1])
    places.now += 1.0
    assert places.ended == []
    if end is not None:
        harness.upstream.data_received(end)
    else:
        harness.exchange.time_out()
    assert places.ended == [("api", 2.0, Outcome.ANSWERED)]


def test_a_request_that_is_sent_again_keeps_its_place() -> None:
    async def check() -> None:
        places, harness = started()
        lose(harness)
        await turns()
        assert (places.ended, places.state.in_flight) == ([], 1)
        harness.exchange.abandon()
        assert places.ended == [("api", 2.0, Outcome.UNKNOWN)]

    asyncio.run(check())


@pytest.mark.parametrize(("connect", "outcome"), [("refused", Outcome.UNKNOWN), ("too_late", Outcome.TIMED_OUT)])
def test_an_origin_that_cannot_be_reached_gives_the_place_back(connect: str, outcome: Outcome) -> None:
    async def check() -> None:
        places = RecordedPlaces()
        harness = Harness(request(), pooled=False, place=places.take_place())
        harness.connect = getattr(harness, connect)
        harness.exchange.start(HEAD)
        await turns()
        assert places.ended == [("api", 0.0, outcome)]

    asyncio.run(check())


# Slow clients.


def test_a_place_is_lent_while_the_body_of_a_request_is_slow() -> None:
    places, harness = started(*POST[1:], line=POST[0], ago=0.0)
    harness.exchange.feed(b"he")
    places.pass_time(PATIENCE - 0.25)
    assert places.ended == []
    places.pass_time(0.25)
    assert places.ended == [("api", 0.0, Outcome.UNKNOWN)]
    other = places.take_place()
    harness.exchange.feed(b"llo")
    assert places.state.in_flight == 2
    places.now += 5.0
    harness.upstream.data_received(RESPONSE)
    assert places.ended[1:] == [("api", 5.0, Outcome.ANSWERED)]
    other.give_back(Outcome.UNKNOWN)
    assert places.state.in_flight == 0


@pytest.mark.parametrize("response", [RESPONSE, None])
def test_an_exchange_that_ends_while_its_place_is_lent_has_none_to_give_back(response: bytes | None) -> None:
    places, harness = started(*POST[1:], line=POST[0])
    places.pass_time(PATIENCE)
    places.pass_time(PATIENCE)
    assert places.state.in_flight == 0
    if response is not None:
        harness.upstream.data_received(response)
    harness.exchange.abandon()
    assert places.state.in_flight == 0
    assert len(places.ended) == 1


def test_the_latency_begins_with_the_end_of_the_body() -> None:
    places, harness = started(*POST[1:], line=POST[0])
    harness.exchange.feed(b"hello")
    places.now += 0.5
    harness.upstream.data_received(RESPONSE)
    assert places.ended == [("api", 0.5, Outcome.ANSWERED)]


def test_a_place_is_given_back_when_a_response_takes_long_after_its_head() -> None:
    places, harness = started()
    harness.upstream.data_received(RESPONSE[:-1])
    for _ in range(2):
        places.pass_time(PATIENCE)
    assert places.ended == [("api", 2.0, Outcome.ANSWERED)]
    harness.upstream.data_received(b"i")
    assert len(places.ended) == 1


def test_places_that_are_given_back_are_not_watched() -> None:
    places, harness = started(*POST[1:], line=POST[0])
    harness.exchange.abandon()
    places.pass_time(PATIENCE)
    places.pass_time(PATIENCE)
    assert len(places.ended) == 1


PLACE_ROWS = [(state, event, target) for state, row in PLACE_TRANSITIONS.items() for event, target in row.items()]
PATHS: dict[PlaceState, Callable[[Place], object]] = {
    PlaceState.HELD: lambda place: None,
    PlaceState.LENT: lambda place: place.client_is_slow(),
    PlaceState.RETURNED: lambda place: place.give_back(Outcome.UNKNOWN),
}
EVENTS: dict[PlaceEvent, Callable[[Place], object]] = {
    PlaceEvent.LEND: lambda place: place.client_is_slow(),
    PlaceEvent.TAKE: lambda place: place.body_complete(),
    PlaceEvent.GIVE_BACK: lambda place: place.give_back(Outcome.UNKNOWN),
}


@pytest.mark.parametrize(("state", "event", "target"), PLACE_ROWS)
def test_each_row(state: PlaceState, event: PlaceEvent, target: PlaceState) -> None:
    places = RecordedPlaces()
    place = places.take_place()
    PATHS[state](place)
    assert place.state is state
    EVENTS[event](place)
    assert place.state is target
    assert places.state.in_flight == (target is PlaceState.HELD)


# Decisions on the requests that wait.


class WaitingClient:
    """Stands for a client's connection that waits; `fails` makes its start raise."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls: list[Any] = []
        self.fails = fails

    def start(self, _request: Any, place: Place) -> None:
        if self.fails:
            raise RuntimeError("a defect")
        self.calls.append(place)

    def refuse(self, _request: Any, retry_after: float) -> None:
        self.calls.append(retry_after)

    def abort(self) -> None:
        self.calls.append("abort")


def queued(places: OriginPlaces, client: WaitingClient) -> QueuedRequest:
    one = QueuedRequest(places, client, REQUEST, ("api", "people", b"client"))
    assert places.queue(one) is None
    return one


def test_a_defect_of_one_connection_costs_neither_its_place_nor_the_others_theirs() -> None:
    async def check() -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        places = RecordedPlaces(limit=2)
        held = [places.take_place(), places.take_place()]
        broken, whole = WaitingClient(fails=True), WaitingClient()
        queued(places, broken)
        queued(places, whole)
        places.reconfigure(ConcurrencySettings(max=4))
        assert broken.calls == ["abort"]
        assert [type(call) for call in whole.calls] == [Place]
        assert places.state.in_flight == 3
        assert [str(context["exception"]) for context in reported] == ["a defect"]
        for place in (*held, whole.calls[0]):
            place.give_back(Outcome.UNKNOWN)
        assert places.state.in_flight == 0

    asyncio.run(check())


def test_a_timer_wakes_the_limit_and_is_cancelled_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        places = RecordedPlaces()
        place = places.take_place()
        client = WaitingClient()
        waiting = queued(places, client)
        woken = asyncio.Event()

        def awake(_limit: ConcurrencyLimit, *, now: float) -> tuple[Decision]:
            assert now == places.now
            places.limit.wakeup = float("inf")
            woken.set()
            return (Decision(waiting, starts=False, retry_after=7.0),)

        monkeypatch.setattr(ConcurrencyLimit, "awake", awake)
        places.limit.wakeup = places.now + 0.01
        places.tick(places.now, 0.0)
        await asyncio.sleep(0.02)  # the clock stands still: the timer is early, and set again
        assert not woken.is_set()
        places.now += 0.01
        await asyncio.wait_for(woken.wait(), 5)
        assert client.calls == [7.0]
        places.limit.leave(waiting, now=places.now)
        place.give_back(Outcome.UNKNOWN)
        places.limit.wakeup = places.now + 100.0
        places.tick(places.now, 0.0)
        places.close()

    asyncio.run(check())


def test_the_lag_of_the_event_loop_reaches_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lags = []
    monkeypatch.setattr(ConcurrencyLimit, "lagged", lambda _limit, seconds: lags.append(seconds))
    RecordedPlaces().tick(60.0, 0.07)
    assert lags == [0.07]
