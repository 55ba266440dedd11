"""What holds for the concurrency limit in both middlewares."""

import json

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencySettings, Domain, Gatekeeper, Rule
from headgate.origin import Rejections, Route, Routes, asgi, wsgi
from tests.unit.origin.middlewares import Limit, Middleware, Stop


@pytest.fixture(params=["asgi", "wsgi"])
def kind(request):
    return request.param


def answer(begin):
    begin()


def test_a_limit_needs_no_gatekeeper_and_rejects_what_finds_no_permit(kind):
    limit, calls = Limit(queue=0), []
    middleware = Middleware(kind, lambda begin: (calls.append(1), begin()), limit)
    limit.start()
    status, fields, body = middleware.get()
    assert (status, calls) == (503, [])
    assert int(fields["retry-after"]) >= 1
    assert fields["ratelimit"] == f'"concurrency";r=0;t={fields["retry-after"]}'
    assert fields["cache-control"] == "no-store"
    assert b"busy" in body
    assert middleware.get(accept="application/json").fields["content-type"] == "application/problem+json"
    limit.end(now=limit.now)
    assert middleware.get()[::2] == (200, b"ok")
    assert limit.counts == (0, 0)


def test_a_rejection_has_the_status_of_those_by_rules(kind):
    limit = Limit(queue=0)
    middleware = Middleware(kind, answer, limit, rejections=Rejections(status=429))
    limit.start()
    rejection = middleware.get(accept="application/json")
    assert rejection.status == json.loads(rejection.body)["status"] == 429


@pytest.mark.parametrize("content_type", ["text/plain", "text/event-stream"])
def test_the_latency_ends_with_the_head_and_the_permit_is_held_on(kind, content_type):
    limit, in_flight = Limit(), []

    def work(begin):
        limit.now += 0.5
        begin(content_type)
        limit.now += 60.0
        in_flight.append(limit.in_flight)

    Middleware(kind, work, limit).get()
    assert limit.latencies == [0.5]
    assert in_flight == [1]
    assert limit.in_flight == 0


@pytest.mark.parametrize(("error", "latencies"), [(ValueError, [0.25]), (TimeoutError, [0.25]), (Stop, [])])
def test_an_application_that_raises_releases_its_permit(kind, error, latencies):
    limit = Limit()

    def work(_begin):
        limit.now += 0.25
        raise error

    with pytest.raises(error):
        Middleware(kind, work, limit).get()
    assert (limit.latencies, limit.in_flight) == (latencies, 0)


def test_a_rule_comes_before_the_limit(kind):
    gatekeeper = Gatekeeper.embedded([Domain("shop", (Rule.parse("1/h"),))])
    limit, classified = Limit(), []
    domain = lambda request: classified.append(1) or "shop"  # noqa: E731 - it counts, and returns
    middleware = Middleware(kind, answer, limit, gatekeeper=gatekeeper, domain=domain)
    assert [middleware.get().fields.get("ratelimit", "")[:6] for _ in range(2)] == ["", '"shop"']
    assert limit.latencies == [0.0]
    assert len(classified) == 2


@pytest.mark.parametrize("by", ["mapping", "callable"])
def test_a_request_has_the_priority_of_its_domain_and_may_not_be_limited(kind, by):
    limit = Limit(queue=0)
    routes = Routes([Route("api", path_prefix="/api/"), Route("health", path_prefix="/health")])
    priorities = {"api": "automated", "health": None}

    def by_path(request):
        path = request["path"] if kind == "asgi" else request["PATH_INFO"]
        return priorities.get(path.strip("/"), "people")

    priority = priorities if by == "mapping" else by_path
    middleware = Middleware(kind, answer, limit, domain=routes, priority=priority)
    limit.start()
    assert [middleware.get(path).status for path in ("/", "/api/", "/health")] == [503, 503, 200]
    assert [(request.priority, request.flow) for request in limit.requests] == [
        ("people", b"192.0.2.1"),
        ("automated", b"192.0.2.1"),
    ]


def test_the_log_says_when_rejections_begin(kind, caplog):
    limit = Limit(queue=0)
    middleware = Middleware(kind, answer, limit)
    limit.start()
    assert middleware.get().status == 503
    limit.end(now=limit.now)
    limit.now += 1.0
    for _ in range(2):
        assert middleware.get().status == 200
    assert [record.message for record in caplog.records] == [
        "concurrency limit: rejects requests (limit 1, 1 in flight, 0 wait, 1 rejected so far)"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "got None; .* with concurrency"),
        ({"concurrency": 64}, "ConcurrencySettings\\(max="),
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
