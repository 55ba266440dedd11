"""The responses to requests that a concurrency limit refuses."""

import json

import pytest

from headgate.errors import ConfigurationError
from headgate.origin.response import Refusals, Response


def field(response: Response, name: bytes) -> bytes | None:
    values = [value for field_name, value in response.fields if field_name == name]
    assert len(values) < 2
    return values[0] if values else None


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [(0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.2, b"2"), (60.0, b"60"), (1e9, b"86400")]
)
def test_the_seconds_round_up_and_agree(retry_after: float, seconds: bytes) -> None:
    response = Refusals()(retry_after)
    assert field(response, b"retry-after") == seconds
    assert field(response, b"ratelimit") == b'"concurrency";r=0;t=' + seconds
    assert b"in %b s" % seconds in response.body


def test_it_is_not_cached_and_names_no_capacity() -> None:
    response = Refusals()(3.0)
    assert response.status == 503
    assert field(response, b"cache-control") == b"no-store"
    assert field(response, b"content-length") == b"%d" % len(response.body)
    assert field(response, b"ratelimit-policy") is None
    assert field(response, b"link") is None
    assert response.body == b"Server is busy. The server is handling as many requests as it can; try again in 3 s.\n"


def test_a_client_that_prefers_json_gets_a_problem_document() -> None:
    response = Refusals(status=429)(3.0, accept=b"application/json")
    content = json.loads(response.body)
    assert field(response, b"content-type") == b"application/problem+json"
    assert content["status"] == response.status == 429
    assert content["type"] == "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    assert "in 3 s" in content["detail"]


def test_a_link_is_sent_with_it() -> None:
    link = b'</site.wbn>; rel="alternate"'
    assert field(Refusals()(3.0, link=link), b"link") == link


def test_a_response_is_written_once_for_each_number_of_seconds() -> None:
    refusals = Refusals()
    assert refusals(3.0) is refusals(2.5)
    assert refusals(3.0) is not refusals(3.0, accept=b"application/json")


def test_another_status_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="refusal status 500"):
        Refusals(status=500)
