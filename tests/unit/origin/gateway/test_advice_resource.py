import pytest

from headgate.http.h1 import RequestHead
from headgate.origin.gateway.responses import AdviceResource
from tests.unit.origin.gateway.stub import parse_request

HALF = b'[{"user_agent":"*","fraction":0.5}]'


def request(method: str = "GET", *fields: str, target: str = "/.well-known/traffic-advice") -> RequestHead:
    return parse_request(f"{method} {target} HTTP/1.1".encode(), *map(str.encode, fields))


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
    response = AdviceResource(HALF).respond(request())
    fields = dict(response.fields)
    assert (response.status, response.body) == (200, HALF)
    assert fields[b"content-type"] == b"application/trafficadvice+json"
    assert fields[b"x-content-type-options"] == b"nosniff"
    assert fields[b"cache-control"] == b"max-age=1800"
    assert b"cdn-cache-control" not in fields


def test_a_computed_document_has_the_max_age_of_its_controller_and_no_copy_in_shared_caches() -> None:
    resource = AdviceResource(HALF, max_age=600.0, is_computed=True)
    fields = dict(resource.respond(request()).fields)
    assert fields[b"cache-control"] == b"max-age=600"
    assert fields[b"cdn-cache-control"] == b"no-store"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_agent_that_has_the_document_gets_304(method: str) -> None:
    resource = AdviceResource(HALF, max_age=600.0)
    etag = dict(resource.respond(request()).fields)[b"etag"].decode()
    response = resource.respond(request(method, f"If-None-Match: {etag}"))
    assert (response.status, response.body) == (304, b"")
    assert dict(response.fields)[b"cache-control"] == b"max-age=600"
    assert dict(response.fields)[b"etag"] == etag.encode()


def test_another_document_has_another_etag() -> None:
    resource = AdviceResource(HALF, max_age=600.0)
    etag = dict(resource.respond(request()).fields)[b"etag"].decode()
    resource.publish(b"[]", max_age=60.0)
    response = resource.respond(request("GET", f"If-None-Match: {etag}"))
    assert (response.status, response.body) == (200, b"[]")
    assert dict(response.fields)[b"cache-control"] == b"max-age=60"
