import pytest

from headgate.http.h1 import RequestHead, RequestLimits, parse_request_head
from headgate.origin.gateway.advice_resource import MAX_FETCHES, AdviceFetch, AdviceResource
from headgate.origin.gateway.fetch_bound import CLIENT_FETCHES, TOTAL_RATE

HALF = b'[{"user_agent":"*","fraction":0.5}]'
ADDRESS = b"192.0.2.1"
NOW = 1_700_000_000.0


def request(method: str = "GET", *fields: str, target: str = "/.well-known/traffic-advice") -> RequestHead:
    lines = "".join(f"{field}\r\n" for field in ("Host: a", *fields))
    head = parse_request_head(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode(), RequestLimits())
    assert head is not None
    return head


@pytest.mark.parametrize(
    ("target", "method", "is_for"),
    [
        ("/.well-known/traffic-advice", "GET", True),
        ("/.well-known/traffic-advice?x", "HEAD", True),
        ("/.well-known/traffic-advice", "POST", False),
        ("/.well-known/traffic-advice.json", "GET", False),
        ("/", "GET", False),
    ],
)
def test_it_answers_get_and_head_of_its_path_alone(target: str, method: str, is_for: bool) -> None:
    assert AdviceResource.is_for(request(method, target=target)) is is_for


def test_a_static_document_is_fresh_for_half_an_hour() -> None:
    response = AdviceResource(HALF).respond(request(), ADDRESS, now=NOW)
    fields = dict(response.fields)
    assert (response.status, response.body) == (200, HALF)
    assert fields[b"content-type"] == b"application/trafficadvice+json"
    assert fields[b"x-content-type-options"] == b"nosniff"
    assert fields[b"cache-control"] == b"max-age=1800"
    assert b"cdn-cache-control" not in fields


def test_a_computed_document_has_the_max_age_of_its_controller_and_no_copy_in_shared_caches() -> None:
    resource = AdviceResource(HALF, max_age=600.0, is_computed=True)
    fields = dict(resource.respond(request(), ADDRESS, now=NOW).fields)
    assert fields[b"cache-control"] == b"max-age=600"
    assert fields[b"cdn-cache-control"] == b"no-store"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_agent_that_has_the_document_gets_304(method: str) -> None:
    resource = AdviceResource(HALF, max_age=600.0)
    etag = dict(resource.respond(request(), ADDRESS, now=NOW).fields)[b"etag"].decode()
    response = resource.respond(request(method, f"If-None-Match: {etag}"), ADDRESS, now=NOW)
    assert (response.status, response.body) == (304, b"")
    assert dict(response.fields)[b"cache-control"] == b"max-age=600"
    assert dict(response.fields)[b"etag"] == etag.encode()


def test_another_document_has_another_etag() -> None:
    resource = AdviceResource(HALF, max_age=600.0)
    etag = dict(resource.respond(request(), ADDRESS, now=NOW).fields)[b"etag"].decode()
    resource.publish(b"[]", max_age=60.0, serial=2)
    response = resource.respond(request("GET", f"If-None-Match: {etag}"), ADDRESS, now=NOW)
    assert (response.status, response.body) == (200, b"[]")
    assert dict(response.fields)[b"cache-control"] == b"max-age=60"


def test_each_response_that_renews_the_advice_of_an_agent_is_recorded() -> None:
    resource = AdviceResource(HALF, serial=7, is_computed=True)
    etag = dict(resource.respond(request("HEAD", "User-Agent: Bot"), ADDRESS, now=NOW).fields)[b"etag"].decode()
    assert resource.take_fetches() == []
    resource.respond(request("GET", "User-Agent: Bot"), ADDRESS, now=NOW)
    resource.respond(request("GET", "User-Agent: Other", f"If-None-Match: {etag}"), b"192.0.2.2", now=NOW)
    assert resource.take_fetches() == [
        AdviceFetch(ADDRESS, b"Bot", 7),
        AdviceFetch(b"192.0.2.2", b"Other", 7),
    ]
    assert resource.take_fetches() == []


def test_fetches_of_a_static_document_are_not_recorded() -> None:
    resource = AdviceResource(HALF)
    resource.respond(request(), ADDRESS, now=NOW)
    assert resource.take_fetches() == []


def test_the_record_of_fetches_is_bounded() -> None:
    resource = AdviceResource(HALF, is_computed=True)
    fetch = request("GET", f"User-Agent: {'x' * 5_000}")
    for number in range(MAX_FETCHES + 10):
        assert resource.respond(fetch, b"%d" % (number % 100), now=NOW + number).status == 200
    fetches = resource.take_fetches()
    assert len(fetches) == MAX_FETCHES
    assert len(fetches[0].user_agent) == 200


def test_an_address_that_asks_too_often_gets_429_and_when_to_come_back() -> None:
    resource = AdviceResource(HALF, max_age=600.0, is_computed=True)
    statuses = [resource.respond(request(), ADDRESS, now=NOW).status for _ in range(CLIENT_FETCHES + 1)]
    assert statuses == [200] * CLIENT_FETCHES + [429]
    assert len(resource.take_fetches()) == CLIENT_FETCHES
    fields = dict(resource.respond(request(), ADDRESS, now=NOW).fields)
    assert fields[b"retry-after"] == b"60"
    assert fields[b"cache-control"] == b"no-store"


def test_agents_beyond_what_a_process_serves_get_503() -> None:
    resource = AdviceResource(HALF, max_age=600.0, is_computed=True, draw=lambda: 0.5)
    for number in range(int(TOTAL_RATE)):
        assert resource.respond(request(), b"%d" % number, now=NOW).status == 200
    refused = resource.respond(request(), ADDRESS, now=NOW)
    assert (refused.status, dict(refused.fields)[b"retry-after"]) == (503, b"90")


def test_a_static_document_is_served_without_bounds() -> None:
    resource = AdviceResource(HALF)
    assert {resource.respond(request(), ADDRESS, now=NOW).status for _ in range(CLIENT_FETCHES + 10)} == {200}
