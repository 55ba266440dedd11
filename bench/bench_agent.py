"""CPU time that a polite transport adds to a request, compared with a retrying decorator.

It is measured as CPU time beyond that of the bare transport behind it, which answers from memory with ten typical
response fields. The agent has 10,000 failing targets; half of its requests are to some of them, whose holds are over,
and half to targets that do not fail. The peer is tenacity as in its documentation: a decorated function around the same
call, which is retried after the library's errors and after failures, at most five times, with exponential pauses. In a
round the three take turns in fifty short passes, and the best pass of each counts, so that other programs on the
machine do not. Requests for one URL have a row of their own.

Checks before a time counts: every request has its own answer, and exactly the failing targets are stored.
"""

import time
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Any

import httpx2

from bench import agent_comparison
from bench.measure import Row, compared, verify
from headgate.agent import Courtesy
from headgate.agent.httpx import Transport
from headgate.throttle import Policy, Throttle

FIELDS = {
    "Date": "Fri, 21 Nov 2025 00:02:00 GMT", "Server": "nginx", "Content-Type": "text/html; charset=utf-8",
    "Content-Length": "12345", "Content-Encoding": "gzip", "Cache-Control": "max-age=600", "ETag": '"5f3c-1"',
    "Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff", "Last-Modified": "Thu, 20 Nov 2025 00:00:00 GMT",
}  # fmt: skip
FAILING, REQUESTS, PASSES = 10_000, 50, 50

Send = Callable[[httpx2.Request], Any]


class FromMemory(httpx2.BaseTransport):
    """Answers requests with responses made for them before."""

    def __init__(self) -> None:
        self.answers: dict[httpx2.Request, httpx2.Response] = {}

    def prepare(self, numbers: Iterable[int]) -> list[httpx2.Request]:
        """Make requests for these targets, and their responses: as new as they are when a client has made them."""
        requests = [httpx2.Request("GET", url(number)) for number in numbers]
        empty = httpx2.ByteStream(b"")
        self.answers = {request: httpx2.Response(200, headers=FIELDS, stream=empty) for request in requests}
        return requests

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Give it."""
        return self.answers[request]


def url(number: int) -> str:
    """Give the URL of a target; those from `FAILING` on do not fail."""
    return f"https://www.example.com/{number}/page.html?from=here"


def failing() -> Throttle:
    """Give a throttle with targets that fail and may be asked again; those that will be stay failing for long."""
    policy = Policy(num_errors_to_ignore=0, maximum_backoff=10, entry_lifetime=86_400)
    throttle, now = Throttle(policy), time.time() - 60
    for number in range(FAILING):
        for _ in range(100):
            throttle.response_received(url(number), 500, {}, now=now)
    return throttle


def tenacious(send: Send) -> Send:
    """Give `send` as tenacity would have it."""
    from tenacity import retry, retry_if_exception_type, retry_if_result, stop_after_attempt, wait_exponential

    def is_failure(response: httpx2.Response) -> bool:
        return response.status_code in {429, 500, 503, 509}

    @retry(
        retry=retry_if_exception_type(httpx2.TransportError) | retry_if_result(is_failure),
        stop=stop_after_attempt(5),
        wait=wait_exponential(multiplier=0.7, max=900),
    )
    def decorated(request: httpx2.Request) -> Any:
        return send(request)

    return decorated


def microseconds(send: Send, requests: list[httpx2.Request]) -> float:
    """Give the microseconds of CPU time that each request takes."""
    start = time.process_time()
    for request in requests:
        send(request)
    return (time.process_time() - start) / len(requests) * 1e6


def of_many(turn: int) -> Iterable[int]:
    """Give targets, half of which fail, other ones in each pass of a round."""
    start = turn * REQUESTS
    return chain(range(start, start + REQUESTS), range(FAILING + start, FAILING + start + REQUESTS))


def of_one(_turn: int) -> Iterable[int]:
    """Give one target that does not fail, again and again."""
    return repeat(FAILING, 2 * REQUESTS)


def added(memory: FromMemory, ours: Send, peer: Send, chosen: Callable[[int], Iterable[int]]) -> tuple[float, float]:
    """Give what ours and the peer add to the bare transport, in microseconds."""
    passes = []
    for turn in range(PASSES):
        requests = memory.prepare(chosen(turn))
        passes.append([microseconds(send, requests) for send in (memory.handle_request, ours, peer)])
    least, mine, theirs = map(min, zip(*passes, strict=True))
    return mine - least, theirs - least


def run(rounds: int) -> list[Row]:
    """Give a row for each bound."""
    memory, throttle = FromMemory(), failing()
    courtesy = Courtesy(throttle=throttle, policy=throttle.policy)
    ours, peer = Transport(courtesy, memory).handle_request, tenacious(memory.handle_request)
    for name, send in (("ours", ours), ("the peer", peer)):
        requests = memory.prepare(range(FAILING - 50, FAILING + 50))
        answers = [send(request) for request in requests]
        verify(f"{name} gives every request its answer", right=answers == list(memory.answers.values()))
    many, one = ([added(memory, ours, peer, chosen) for _ in range(rounds)] for chosen in (of_many, of_one))
    names = {url(number).partition("?")[0] for number in range(FAILING)}
    stored = [throttle.explain(name, now=time.time()).failures > 0 for name in names]
    verify("every failing target is stored, and fails", right=all(stored))
    verify("and nothing else is", right=len(throttle) == FAILING)
    rows = []
    for what, each in (("a request", many), ("a request for the same URL", one)):
        mine, theirs = zip(*each, strict=True)
        rows.append(compared(f"CPU added to {what}", mine, ("≤", 0.4), ("tenacity", theirs), "µs"))
    return [*rows, *agent_comparison.run(rounds)]
