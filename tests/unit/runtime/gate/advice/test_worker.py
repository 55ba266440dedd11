"""What one process of a gate serves as traffic advice, and reports."""

import asyncio

from headgate.config import Configuration, parse
from headgate.http.h1 import RequestHead, RequestLimits, parse_request_head
from headgate.origin.gateway.fetch_bound import CLIENT_FETCHES
from headgate.runtime.gate.advice.messages import AdvicePublication, OriginReport
from headgate.runtime.gate.advice.worker import AdviceWorker

NOW = 1_000.0
COMPUTED = '[advice]\nmode = "adaptive"\ncapacity = "100/s"\nmax_age = 900\n'
IDLE = OriginReport()


def request() -> RequestHead:
    lines = "GET /.well-known/traffic-advice HTTP/1.1\r\nHost: a\r\nUser-Agent: ExampleBot\r\n\r\n"
    head = parse_request_head(lines.encode(), RequestLimits())
    assert head is not None
    return head


def part(text: str, publication: AdvicePublication | None = None) -> AdviceWorker:
    tree: Configuration = parse(text)
    return AdviceWorker(tree, publication, now=NOW, log=lambda _message: None)


def fields(served: AdviceWorker) -> dict[bytes, bytes]:
    assert served.resource is not None
    return dict(served.resource.respond(request(), b"192.0.2.1", now=NOW).fields)


def test_computed_advice_has_the_max_age_that_the_controller_expects() -> None:
    served = part(COMPUTED)
    assert fields(served)[b"cache-control"] == b"max-age=900"
    assert fields(served)[b"cdn-cache-control"] == b"no-store"
    served.publish(AdvicePublication(b"[]", 7), now=NOW)
    assert fields(served)[b"cache-control"] == b"max-age=900"
    for _ in range(CLIENT_FETCHES):
        last = fields(served)
    assert last[b"retry-after"] == b"90"


def test_static_advice_is_cached_for_half_an_hour_and_counts_nothing() -> None:
    served = part('[[advice]]\nuser_agent = "*"\nfraction = 0.5\n')
    assert fields(served)[b"cache-control"] == b"max-age=1800"
    assert b"cdn-cache-control" not in fields(served)
    assert served.arrivals is None
    assert [(each.fraction, each.reason) for each in served.state()] == [(0.5, "static")]
    assert part("").resource is None


def test_a_worker_serves_what_its_supervisor_publishes_and_reports_to_it() -> None:
    served = part(COMPUTED, AdvicePublication(b'[{"user_agent":"*"}]', 3))
    assert (served.loop, served.state()) == (None, ())
    fields(served)
    report = served.report(OriginReport(5, 2, 40.0))
    assert [(fetch.user_agent, fetch.serial) for fetch in report.fetches] == [(b"ExampleBot", 3)]
    assert report.origin == OriginReport(5, 2, 40.0)


def test_a_process_of_its_own_decides() -> None:
    served = part(COMPUTED)
    fields(served)
    assert served.loop is not None
    served.loop.take(served.report(IDLE), now=NOW + 60)
    asyncio.run(served.tick(now=NOW + 60))
    assert {each.user_agent: each.agents for each in served.state()} == {"prefetch-proxy": 0, "*": 1}
