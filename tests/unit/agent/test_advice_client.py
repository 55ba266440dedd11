"""One fetch for an origin, however many ask; and failures of this machine, which say nothing of the origin.

Fetches in threads and in tasks: each reports once, whatever becomes of it.
"""

import asyncio
import logging
import queue
import subprocess
import sys
import textwrap
import threading

import anyio
import anyio.lowlevel
import pytest

from headgate.advice import AdviceCache
from headgate.advice.cache import REPORT_TIMEOUT
from headgate.advice.decision import Advice
from headgate.advice.fetching import NETWORK_ERROR, AdviceRequest, AdviceResponse
from headgate.advice.parser import UNREACHABLE
from headgate.agent import advice_client
from headgate.agent.advice_client import AdviceClient, PendingAdvice, in_task, in_thread
from headgate.agent.wait import FetchWait

ORIGIN = "https://example.com"
NOW = 1000.0
HALF = AdviceResponse(200, [("Content-Type", "application/trafficadvice+json")], b'[{"user_agent":"*","fraction":0.5}]')


class Post:
    """Takes what is to be fetched, and brings the answers when the test says so."""

    def __init__(self) -> None:
        self.started: list[tuple[str, object]] = []
        self.now = NOW
        self.told: list[Advice] = []
        self.runner: object = None
        self.fields: dict[str, str] = {}

    def start(self, request, report):
        self.started.append((request.url, report))
        self.fields = dict(request.fields)
        return self.runner

    def report(self, outcome, which=-1):
        self.started[which][1](outcome)

    def client(self) -> AdviceClient:
        return AdviceClient(
            AdviceCache("ExampleBot"),
            clock=lambda: self.now,
            on_advice=lambda advice: self.told.append(advice),
            own_fields=lambda method, url: {"User-Agent": f"{method} {url}"},
            is_asked_to_sign=lambda *_: False,
            default=self.start,
        )


@pytest.fixture
def post():
    return Post()


def pending(client: AdviceClient, origin: str = ORIGIN, *, now: float = NOW, **options) -> PendingAdvice:
    answer = client.ask(origin, now=now, **options)
    assert isinstance(answer, PendingAdvice)
    return answer


def known(client: AdviceClient, origin: str = ORIGIN, *, now: float = NOW) -> Advice:
    answer = client.ask(origin, now=now)
    assert isinstance(answer, Advice)
    return answer


def test_requests_for_one_origin_share_a_fetch(post):
    client = post.client()
    first, *others = [pending(client) for _ in range(100)]
    assert [url for url, _ in post.started] == ["https://example.com/.well-known/traffic-advice"]
    assert post.fields["User-Agent"] == "GET https://example.com/.well-known/traffic-advice"
    assert (first.until, first.is_under_way) == (NOW + REPORT_TIMEOUT, True)
    assert others == [first] * 99
    post.report(HALF)
    assert first.finished.done()
    advice = known(client)
    assert advice.entry.fraction == 0.5
    assert len(post.started) == 1
    assert post.told == [advice]


def test_a_hundred_threads_start_one_fetch(post):
    client = post.client()
    together = threading.Barrier(100)
    got: list[object] = []

    def ask() -> None:
        together.wait(10)
        answer = client.ask(ORIGIN, now=NOW)
        if isinstance(answer, PendingAdvice):
            FetchWait(answer.finished, 30).block()
            answer = client.ask(ORIGIN, now=NOW)
        got.append(answer)

    threads = [threading.Thread(target=ask) for _ in range(100)]
    for thread in threads:
        thread.start()
    for _ in range(1000):
        if post.started:
            break
        threading.Event().wait(0.01)
    post.report(HALF)
    for thread in threads:
        thread.join(10)
    assert len(post.started) == 1
    assert len(got) == 100
    assert all(isinstance(answer, Advice) and answer.entry.fraction == 0.5 for answer in got)


def test_the_client_of_a_request_is_preferred(post):
    started = []
    client = post.client()
    pending(client, start=lambda request, report: started.append(request.url))
    assert (started, post.started) == (["https://example.com/.well-known/traffic-advice"], [])


def test_waits_end_even_if_the_hook_fails(post):
    client = post.client()
    waiting = pending(client)
    client._on_advice = lambda advice: 1 / 0
    with pytest.raises(ZeroDivisionError):
        post.report(HALF)
    assert waiting.finished.done()


def test_a_finished_fetch_is_dropped(post):
    client = post.client()
    for number in range(10):
        pending(client, f"https://{number}.example.com")
        post.report(HALF if number % 2 else OSError("of this machine"))
    assert client._running == {}


def test_a_request_that_read_the_clock_before_the_fetch_was_started_shares_it(post):
    client = post.client()
    post.now = NOW + 0.25
    first = pending(client, now=NOW + 0.25)
    assert pending(client, now=NOW) == first
    assert len(post.started) == 1


# -- failures of this machine


def test_a_local_failure_does_not_make_the_origin_unreachable(post, caplog):
    client = post.client()
    waiting = pending(client)
    with caplog.at_level(logging.WARNING, "headgate.agent"):
        post.report(OSError(24, "Too many open files"))
    assert waiting.finished.done()
    assert client.known(ORIGIN, now=NOW) is None
    assert post.told == []
    assert caplog.messages == [
        "the traffic advice of https://example.com was not fetched: OSError(24, 'Too many open files')"
    ]


def test_a_fetch_is_repeated_after_a_local_failure_and_a_pause(post):
    client = post.client()
    pending(client)
    post.report(OSError(24, "Too many open files"))
    again = pending(client, now=NOW + 0.5)
    assert (again.until, again.is_under_way, again.finished.done()) == (NOW + 1, False, False)
    assert len(post.started) == 1
    assert pending(client, now=NOW + 1).is_under_way
    assert len(post.started) == 2
    post.report(HALF)
    assert known(client, now=NOW + 1).entry.fraction == 0.5


def test_a_fetch_that_cannot_be_started_is_a_local_failure(post):
    def fail(request, report):
        raise RuntimeError("can't start new thread")

    client = post.client()
    assert pending(client, start=fail).finished.done()
    assert not pending(client).is_under_way
    assert client._running == {}


def test_fetches_beyond_the_limit_are_started_later(post, monkeypatch):
    monkeypatch.setattr(advice_client, "MAX_FETCHES", 2)
    asking = post.client()
    for number in range(2):
        pending(asking, f"https://{number}.example.com")
    third = pending(asking, "https://2.example.com")
    assert (third.until, third.is_under_way) == (NOW + 1, False)
    assert len(post.started) == 2
    # Whatever becomes of the others, it is never known as unreachable for it.
    assert asking.known("https://2.example.com", now=NOW + 10) is None
    post.report(NETWORK_ERROR, 0)
    assert pending(asking, "https://2.example.com", now=NOW + 1).is_under_way
    assert len(post.started) == 3


@pytest.fixture
def thread():
    """Run a thread for as long as the test runs, as a server keeps one that sends its head byte by byte."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    yield thread
    over.set()
    thread.join(10)


def test_overdue_fetches_do_not_count_towards_the_limit(post, thread):
    post.runner = thread
    asking = post.client()
    for number in range(advice_client.MAX_FETCHES):
        assert pending(asking, f"https://{number}.example.com").is_under_way
    assert not pending(asking, now=NOW + REPORT_TIMEOUT - 0.1).is_under_way
    assert pending(asking, now=NOW + REPORT_TIMEOUT + 1).is_under_way
    assert len(post.started) == advice_client.MAX_FETCHES + 1


def test_overdue_threads_are_limited(post, thread, monkeypatch):
    monkeypatch.setattr(advice_client, "MAX_FETCHES", 2)
    monkeypatch.setattr(advice_client, "MAX_OVERDUE", 4)
    post.runner = thread
    asking, now = post.client(), NOW
    for number in range(12):
        asking.ask(f"https://{number}.example.com", now=now)
        now += REPORT_TIMEOUT
    assert len(post.started) == 4
    post.report(NETWORK_ERROR, 0)  # one of them ends
    assert pending(asking, now=now).is_under_way


def test_fetches_of_stopped_event_loops_do_not_count(post, monkeypatch):
    monkeypatch.setattr(advice_client, "MAX_FETCHES", 2)
    asking, now = post.client(), NOW
    monkeypatch.setattr(advice_client, "MAX_OVERDUE", 1)
    for number in range(12):
        assert pending(asking, f"https://{number}.example.com", now=now).is_under_way
        now += REPORT_TIMEOUT


def test_an_origin_that_keeps_a_thread_is_unreachable_and_gets_no_second_one(post):
    asking, over = post.client(), threading.Event()
    post.runner = threading.Thread(target=over.wait, daemon=True)
    post.runner.start()
    pending(asking)
    try:
        for now in (NOW + REPORT_TIMEOUT, NOW + REPORT_TIMEOUT + 60):
            advice = known(asking, now=now)
            assert (advice.result, advice.reason) == (UNREACHABLE, "no response received: not within 5 s")
        assert len(post.started) == 1
    finally:
        over.set()
        post.runner.join()
    post.report(HALF)
    assert known(asking, now=NOW + 200).entry.fraction == 0.5


# -- forks


def test_a_fetch_during_a_fork_ends_in_the_parent_and_is_repeated_in_the_child(post):
    parent, child = post.client(), post.client()
    for asking in (parent, child):
        pending(asking)
        asking.before_fork()
    parent.after_fork(is_child=False)
    child.after_fork(is_child=True)
    for asking, fetches in ((parent, 2), (child, 3)):
        assert pending(asking).is_under_way
        assert len(post.started) == fetches
    for which in (0, 2):
        post.report(HALF, which)
    for asking in (parent, child):
        assert known(asking).entry.fraction == 0.5


REQUEST = AdviceRequest("https://example.com/", ())


def test_a_thread_reports_the_response_or_the_error():
    reports: queue.SimpleQueue[object] = queue.SimpleQueue()
    in_thread(lambda request: NETWORK_ERROR)(REQUEST, reports.put)
    assert reports.get(timeout=30) is NETWORK_ERROR
    error = OSError("of this machine")

    def fail(request):
        raise error

    thread = in_thread(fail)(REQUEST, reports.put)
    assert reports.get(timeout=30) is error
    thread.join(30)
    assert reports.empty()


def test_a_hanging_thread_does_not_keep_the_program_running():
    program = """
    import threading
    from headgate.advice.fetching import AdviceRequest
    from headgate.agent.advice_client import in_thread
    begun = threading.Event()

    def hang(request):
        begun.set()
        threading.Event().wait()

    in_thread(hang)(AdviceRequest("https://example.com/", ()), print)
    begun.wait(30)
    print("the end")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    assert subprocess.run(command, capture_output=True, timeout=30, check=True).stdout == b"the end\n"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_reports_the_response_or_the_error(backend):
    error = OSError("of this machine")

    async def answer(request):
        return NETWORK_ERROR

    async def fail(request):
        raise error

    async def both():
        reports: list[object] = []
        for fetch in (answer, fail):
            in_task(fetch)(REQUEST, reports.append)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        return reports

    reports = anyio.run(both, backend=backend)
    assert len(reports) == 2
    assert {*map(id, reports)} == {id(NETWORK_ERROR), id(error)}


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_that_ends_with_its_event_loop_reports_that(backend, steps):
    reports: list[object] = []

    async def hang(request):
        await anyio.sleep_forever()

    async def end():
        in_task(hang)(REQUEST, reports.append)
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()

    anyio.run(end, backend=backend)
    (error,) = reports
    assert isinstance(error, RuntimeError)
    assert str(error) == "the event loop of the fetch has ended"


def test_a_thread_that_cannot_be_started_raises(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        in_thread(lambda request: NETWORK_ERROR)(REQUEST, print)


def test_a_fetch_of_a_closed_event_loop_is_made_again_at_once(post):
    client = post.client()

    async def never_ends(_):
        await asyncio.sleep(3600)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))

    async def ask():
        pending(client, start=in_task(never_ends))

    loop.run_until_complete(ask())
    tasks = asyncio.all_tasks(loop)
    loop.close()
    assert pending(client).is_under_way
    assert len(post.started) == 1
    post.report(HALF)
    assert known(client).entry.fraction == 0.5
    for task in tasks:
        task._log_destroy_pending = False
