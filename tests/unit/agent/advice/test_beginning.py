"""Fetches in threads: called back once each, in time, so many at once, through shutdowns and forks."""

import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

import pytest

from headgate.advice import AgentIdentity
from headgate.advice.fetching import NETWORK_ERROR, AdviceRequest, AdviceResponse, advice_request
from headgate.agent.advice import beginning
from headgate.agent.advice.beginning import MOST_AT_ONCE, begin_fetch
from tests.unit.agent.advice.programs import printed
from tests.unit.agent.advice.scripted import PATIENCE, Server, serving

BODY = b'[{"user_agent":"*","fraction":0.5}]'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/trafficadvice+json\r\n\r\n" + BODY


@pytest.fixture(autouse=True)
def fetches(monkeypatch):
    """Begin with none, whatever other tests left."""
    fetches = beginning._Fetches()
    monkeypatch.setattr(beginning._Fetches, "now", fetches)
    return fetches


def request(server: Server) -> AdviceRequest:
    request = advice_request(f"http://127.0.0.1:{server.port}", AgentIdentity(["ExampleBot", "*"]))
    assert request is not None
    return request


def answer(connection, server):
    connection.recv(1 << 16)
    connection.sendall(ANSWER)


class Gate:
    """A server that answers everybody once it is opened; says who is there."""

    def __init__(self) -> None:
        self.here: SimpleQueue[None] = SimpleQueue()
        self.open = threading.Event()

    def answer(self, connection, server):
        connection.recv(1 << 16)
        self.here.put(None)
        assert self.open.wait(PATIENCE)
        connection.sendall(ANSWER)


class Told:
    """Keeps what it is called with, and which thread called."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.came: SimpleQueue[tuple[AdviceResponse, threading.Thread]] = SimpleQueue()
        self.then = then

    def __call__(self, response: AdviceResponse) -> None:
        self.came.put((response, threading.current_thread()))
        self.then()

    def next(self) -> AdviceResponse:
        return self.came.get(timeout=PATIENCE)[0]

    def is_done(self) -> bool:
        try:
            self.came.get(timeout=0.02)
        except Empty:
            return True
        return False


def test_it_is_called_once_with_what_came_in_a_thread_that_keeps_no_program_from_ending():
    told = Told()
    with serving(answer) as server:
        begin_fetch(request(server), done=told)
        response, thread = told.came.get(timeout=PATIENCE)
    assert (response.status, response.body, response.failure) == (200, BODY, "")
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert told.is_done()


def test_it_returns_at_once():
    gate, told = Gate(), Told()
    with serving(gate.answer) as server:
        begin_fetch(request(server), done=told)
        gate.here.get(timeout=PATIENCE)
        assert told.came.empty()
        gate.open.set()
        assert told.next().status == 200


def test_a_fetch_that_takes_too_long_has_failed(monkeypatch):
    monkeypatch.setattr(beginning, "TIMEOUT", 0.1)
    gate, told = Gate(), Told()
    with serving(gate.answer) as server:
        begin_fetch(request(server), done=told)
        assert told.next() == NETWORK_ERROR._replace(failure="not within 0.1 s")
        gate.open.set()
    assert told.is_done()


def test_only_so_many_are_made_at_once_and_the_others_follow():
    gate, told = Gate(), Told()
    with serving(gate.answer) as server:
        for _ in range(MOST_AT_ONCE + 8):
            begin_fetch(request(server), done=told)
        for _ in range(MOST_AT_ONCE):
            gate.here.get(timeout=PATIENCE)
        with pytest.raises(Empty):
            gate.here.get(timeout=0.05)
        gate.open.set()
        assert [told.next().status for _ in range(MOST_AT_ONCE + 8)] == [200] * (MOST_AT_ONCE + 8)
    assert told.is_done()


def test_what_waits_is_made_in_its_order(monkeypatch):
    monkeypatch.setattr(beginning, "MOST_AT_ONCE", 1)
    order: SimpleQueue[int] = SimpleQueue()
    with serving(answer) as server:
        for number in range(10):
            begin_fetch(request(server), done=lambda response, number=number: order.put(number))
        assert [order.get(timeout=PATIENCE) for _ in range(10)] == list(range(10))


def test_the_time_of_what_waits_passes_too(monkeypatch):
    monkeypatch.setattr(beginning, "MOST_AT_ONCE", 1)
    gate, told = Gate(), Told()
    with serving(gate.answer) as server:
        # Nobody is given less time than who is in front, but here, so that it is over when the turn comes.
        with monkeypatch.context() as patch:
            for seconds in (0.2, 0.1, 0.1):
                patch.setattr(beginning, "TIMEOUT", seconds)
                begin_fetch(request(server), done=told)
        assert [told.next().failure for _ in range(3)] == [f"not within {seconds} s" for seconds in (0.2, 0.1, 0.1)]
        gate.open.set()
        begin_fetch(request(server), done=told)
        assert told.next().status == 200
        assert gate.here.qsize() == 2, "nobody was connected to in vain"


def test_only_so_many_wait(monkeypatch):
    monkeypatch.setattr(beginning, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(beginning, "MOST_WAITING", 2)
    gate, told, refused = Gate(), Told(), Told()
    with serving(gate.answer) as server:
        for _ in range(3):
            begin_fetch(request(server), done=told)
        begin_fetch(request(server), done=refused)
        response, thread = refused.came.get_nowait()
        assert response == NETWORK_ERROR._replace(failure="too many others wait")
        assert thread is threading.current_thread()
        gate.open.set()
        assert [told.next().status for _ in range(3)] == [200] * 3
    assert refused.is_done()


def test_a_thread_is_left_when_nothing_waits(fetches):
    told = Told()
    with serving(answer) as server:
        for _ in range(MOST_AT_ONCE + 1):
            begin_fetch(request(server), done=told)
            told.came.get(timeout=PATIENCE)[1].join(PATIENCE)
    assert fetches._running == 0


@pytest.fixture
def complaints(monkeypatch):
    heard: SimpleQueue[threading.ExceptHookArgs] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", heard.put)
    return heard


@pytest.mark.parametrize("most", [1, 2])
def test_what_is_raised_in_a_call_is_told_of_and_holds_nobody_up(monkeypatch, complaints, most):
    monkeypatch.setattr(beginning, "MOST_AT_ONCE", most)

    def fail():
        raise ZeroDivisionError

    failing, told = Told(fail), Told()
    with serving(answer) as server:
        for done in (failing, failing, told, failing, told):
            begin_fetch(request(server), done=done)
        assert [failing.next().status for _ in range(3)] == [200] * 3
        assert [told.next().status for _ in range(2)] == [200] * 2
    complaint = complaints.get(timeout=PATIENCE)
    assert complaint.exc_type is ZeroDivisionError
    assert complaint.thread is not None
    assert complaint.thread.daemon


def test_a_fetch_that_breaks_off_has_failed(monkeypatch, complaints):
    def fail(*arguments, **options):
        raise ZeroDivisionError

    monkeypatch.setattr(beginning, "fetch_until", fail)
    told = Told()
    begin_fetch(AdviceRequest("http://127.0.0.1:1/", ()), done=told)
    assert told.next() == NETWORK_ERROR._replace(failure="the fetch broke off")
    assert complaints.get(timeout=PATIENCE).exc_type is ZeroDivisionError
    assert told.is_done()


def test_where_no_thread_can_be_had_it_has_failed_at_once_and_takes_no_place(monkeypatch, fetches):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    told = Told()
    with serving(answer) as server:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(MOST_AT_ONCE + 1):
                begin_fetch(request(server), done=told)
                assert told.came.get_nowait()[0] == NETWORK_ERROR._replace(failure="can't start new thread")
        assert fetches._running == 0
        begin_fetch(request(server), done=told)
        assert told.next().status == 200


def test_nobody_is_left_waiting_where_no_thread_can_be_had(monkeypatch, fetches):
    monkeypatch.setattr(beginning, "MOST_AT_ONCE", 1)
    told, others = Told(), Told()

    def refuse(self):
        begin_fetch(AdviceRequest("http://127.0.0.1:1/", ()), done=others)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        begin_fetch(AdviceRequest("http://127.0.0.1:1/", ()), done=told)
    assert told.came.get_nowait()[0].failure == "can't start new thread"
    assert others.came.get_nowait()[0].failure == "can't start new thread"
    assert fetches._running == 0


def test_once_the_program_has_ended_it_has_failed_at_once(monkeypatch):
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    told = Told()
    begin_fetch(AdviceRequest("http://127.0.0.1:1/", ()), done=told)
    assert told.came.get_nowait()[0] == NETWORK_ERROR._replace(failure="the program is ending")


PROGRAM = """
    import atexit, os, sys, threading
    from headgate.advice import AgentIdentity
    from headgate.advice.fetching import advice_request
    from headgate.agent.advice import MOST_AT_ONCE, begin_fetch

    answering, silent = (advice_request(f"http://127.0.0.1:{port}", AgentIdentity(["A", "*"])) for port in sys.argv[1:])

    def fetch(request, told=lambda response: print(response.status, response.failure, flush=True)):
        came = threading.Event()
        begin_fetch(request, done=lambda response: (told(response), came.set()))
        return came
    """


@pytest.fixture
def run():
    """Run `PROGRAM` and more, with a server that answers and one that never does."""

    def run(more: str) -> list[str]:
        with serving(answer) as answering, serving(lambda connection, server: server.over.wait(PATIENCE)) as silent:
            return printed(PROGRAM + more, answering.port, silent.port).splitlines()

    return run


def test_a_program_does_not_wait_for_what_it_began(run):
    more = """
    for _ in range(MOST_AT_ONCE + 8):
        fetch(silent)
    fetch(answering, told=print)
    print("over")
    """
    assert run(more) == ["over"]


def test_threads_that_a_program_waits_for_are_told_before_it_ends(run):
    more = """
    threading.Thread(target=lambda: fetch(answering).wait(20)).start()
    """
    assert run(more) == ["200 "]


def test_a_fetch_that_begins_as_the_program_ends_is_told_of(run):
    # From 3.12 on no thread can be had by then.
    more = """
    atexit.register(lambda: fetch(answering, told=lambda response: None).wait(20) and print("told"))
    """
    assert run(more) == ["told"]


def test_a_fetch_that_begins_once_the_program_has_ended_has_failed(run):
    more = """
    class Late:
        def __init__(self):
            self.begin, self.request, self.write = begin_fetch, answering, os.write

        def __del__(self):
            self.begin(self.request, done=lambda response: self.write(1, response.failure.encode()))

    late = Late()
    """
    assert run(more) == ["the program is ending"]


def test_a_process_that_is_forked_begins_anew(run):
    more = """
    for _ in range(MOST_AT_ONCE):
        fetch(silent)
    waiting = fetch(answering)
    child = os.fork()
    if not child:
        assert fetch(answering).wait(20)
        assert not waiting.is_set()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """
    assert run(more) == ["200 "]
