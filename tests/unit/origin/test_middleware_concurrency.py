"""What holds for the concurrency limit in both middlewares."""

import json

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencySettings, Domain, Gatekeeper, Rule
from headgate.limit.concurrency import Outcome
from headgate.limit.concurrency.long_refusals import DAY
from headgate.origin import Rejections, Route, Routes, asgi, wsgi
from tests.unit.origin.middlewares import Clock, Limit, Middleware, Stop

HOUR = 3_600.0


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture(params=["asgi", "wsgi"])
def kind(request):
    return request.param


def answer(begin):
    begin()


def test_a_limit_needs_no_gatekeeper_and_refuses_what_finds_no_place(kind, clock):
    limit, calls = Limit(queue=0), []
    middleware = Middleware(kind, lambda begin: (calls.append(1), begin()), limit)
    limit.start(now=clock.now)
    status, fields, body = middleware.get()
    assert (status, calls) == (503, [])
    assert int(fields["retry-after"]) >= 1
    assert fields["ratelimit"] == f'"concurrency";r=0;t={fields["retry-after"]}'
    assert fields["cache-control"] == "no-store"
    assert b"busy" in body
    assert middleware.get(accept="application/json").fields["content-type"] == "application/problem+json"
    limit.end("", 0.1, Outcome.ANSWERED, now=clock.now)
    assert middleware.get()[::2] == (200, b"ok")
    assert limit.counts == (0, 0)


def test_a_refusal_has_the_status_of_rejections(kind, clock):
    limit = Limit(queue=0)
    middleware = Middleware(kind, answer, limit, rejections=Rejections(status=429))
    limit.start(now=clock.now)
    refusal = middleware.get(accept="application/json")
    assert refusal.status == json.loads(refusal.body)["status"] == 429


def test_the_latency_ends_with_the_head(kind, clock):
    limit, in_flight = Limit(), []

    def work(begin):
        clock.now += 0.5
        begin()
        in_flight.append(limit.in_flight)

    Middleware(kind, work, limit).get()
    assert limit.ends == [("", 0.5, Outcome.ANSWERED)]
    assert in_flight == [1]
    assert limit.in_flight == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError, Outcome.ANSWERED), (TimeoutError, Outcome.TIMED_OUT), (Stop, Outcome.UNKNOWN)],
)
def test_an_application_that_raises_gives_its_place_back(kind, clock, error, outcome):
    limit = Limit()

    def work(_begin):
        clock.now += 0.25
        raise error

    with pytest.raises(error):
        Middleware(kind, work, limit).get()
    assert limit.ends == [("", 0.25, outcome)]
    assert limit.in_flight == 0


def test_an_event_stream_gives_its_place_back_at_once(kind):
    limit, in_flight = Limit(), []

    def work(begin):
        begin("text/event-stream; charset=utf-8")
        in_flight.append(limit.in_flight)

    Middleware(kind, work, limit).get()
    assert in_flight == [0]
    assert len(limit.ends) == 1


def test_a_rule_comes_before_the_limit(kind):
    gatekeeper = Gatekeeper.embedded([Domain("shop", (Rule.parse("1/h"),))])
    limit, classified = Limit(), []
    domain = lambda request: classified.append(1) or "shop"  # noqa: E731 - it counts, and returns
    middleware = Middleware(kind, answer, limit, gatekeeper=gatekeeper, domain=domain)
    assert [middleware.get().fields.get("ratelimit", "")[:6] for _ in range(2)] == ["", '"shop"']
    assert limit.ends == [("shop", 0.0, Outcome.ANSWERED)]
    assert len(classified) == 2


@pytest.mark.parametrize("by", ["mapping", "callable"])
def test_a_request_has_the_priority_of_its_domain_and_without_one_takes_no_place(kind, clock, by):
    limit = Limit(queue=0)
    routes = Routes([Route("api", path_prefix="/api/"), Route("health", path_prefix="/health")])
    priorities = {"api": "automated", "health": None}

    def by_path(request):
        path = request["path"] if kind == "asgi" else request["PATH_INFO"]
        return priorities.get(path.strip("/"), "people")

    priority = priorities if by == "mapping" else by_path
    middleware = Middleware(kind, answer, limit, domain=routes, priority=priority)
    limit.start(now=clock.now)
    assert [middleware.get(path).status for path in ("/", "/api/", "/health")] == [503, 503, 200]
    assert [(request.domain, request.priority, request.flow) for request in limit.requests] == [
        ("", "people", b"192.0.2.1"),
        ("api", "automated", b"192.0.2.1"),
    ]


def test_the_log_says_when_refusals_begin_and_end(kind, clock, caplog):
    limit = Limit(queue=0)
    middleware = Middleware(kind, answer, limit)
    limit.start(now=clock.now)
    for seconds in (0.25, 0.25, 10.0):
        if seconds < 1.0:
            assert middleware.get().status == 503
        clock.now += seconds
        middleware.look()
    figures = "(limit 1, 1 in flight, 0 wait, {} refused so far)"
    assert [record.message for record in caplog.records] == [
        f"concurrency limit: refuses requests {figures.format(1)}",
        f"concurrency limit: refuses no more requests {figures.format(2)}",
    ]


@pytest.mark.parametrize("served", [0, 2])
def test_a_class_that_is_refused_for_a_day_is_worth_a_warning(kind, clock, caplog, served):
    """But not one of whose requests as many are served."""
    limit = Limit(queue=0)
    middleware = Middleware(kind, answer, limit, priority={"": "verified"})
    middleware.look()
    for _ in range(25):
        for _ in range(served):
            assert middleware.get().status == 200
        limit.start(now=clock.now)
        for _ in range(2):
            assert middleware.get().status == 503
        limit.end("", 0.1, Outcome.ANSWERED, now=clock.now)
        clock.now += HOUR
        middleware.look()
    warnings = [record.message for record in caplog.records if "hours" in record.message]
    assert len(warnings) == (0 if served else 1)
    assert all("class verified were refused for 24 hours" in warning for warning in warnings)
    refused_for = {"people": 0.0, "verified": 0.0 if served else DAY + HOUR, "automated": 0.0, "prefetch": 0.0}
    assert middleware.middleware.concurrency.refused_for == refused_for


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "got None; .* with concurrency"),
        ({"concurrency": 64}, "ConcurrencySettings\\(max="),
        ({"concurrency": ConcurrencySettings(max=1), "gatekeeper": 5}, "gatekeeper must be a Gatekeeper"),
        ({"concurrency": ConcurrencySettings(max=1), "priority": {"x": "people"}, "domain": "a"}, "unknown domain 'x'"),
        ({"concurrency": ConcurrencySettings(max=1), "priority": {"a": "robots"}, "domain": "a"}, "got 'robots'"),
        ({"concurrency": ConcurrencySettings(max=1), "priority": 5}, "mapping or a callable"),
    ],
)
def test_invalid_arguments_are_errors_of_configuration(kind, options, message):
    make = asgi.GatekeeperMiddleware if kind == "asgi" else wsgi.GatekeeperMiddleware
    threads = {} if kind == "asgi" else {"threads": 8}
    with pytest.raises(ConfigurationError, match=message):
        make(answer, **options, **threads)


def test_a_priority_that_a_callable_invents_is_an_error_of_every_request(kind):
    middleware = Middleware(kind, answer, Limit(), priority=lambda request: "robots")
    with pytest.raises(ConfigurationError, match="'people', 'verified', 'automated', 'prefetch'"):
        middleware.get()


def test_a_limit_that_is_off_is_none(kind):
    settings = ConcurrencySettings(mode="off")
    if kind == "asgi":
        middleware = asgi.GatekeeperMiddleware(answer, gatekeeper=Gatekeeper(), concurrency=settings)
    else:
        middleware = wsgi.GatekeeperMiddleware(answer, concurrency=settings, threads=8)
    assert middleware.concurrency is None
