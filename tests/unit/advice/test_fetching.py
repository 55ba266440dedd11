"""Section 5: the request, and what a response means."""

import pytest

from headgate.advice import MEDIA_TYPE, AgentIdentity
from headgate.advice.fetching import (
    MAX_BODY_BYTES,
    NETWORK_ERROR,
    AdviceRequest,
    AdviceResponse,
    advice_request,
    interpret,
    interpret_fully,
    needs_body,
    traffic_advice_url,
)
from headgate.advice.parser import UNREACHABLE, AdviceEntry, AdviceResult

IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])
HALF = b'[{"user_agent":"*","fraction":0.5}]'
TYPED = [("Content-Type", MEDIA_TYPE)]


@pytest.mark.parametrize(
    ("origin", "url"),
    [
        ("https://example.com", "https://example.com/.well-known/traffic-advice"),
        ("https://example.com:8443", "https://example.com:8443/.well-known/traffic-advice"),
        ("HTTPS://u:p@Example.com:443/a?b#c", "https://example.com/.well-known/traffic-advice"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/.well-known/traffic-advice"),
        ("http://127.1", "http://127.0.0.1/.well-known/traffic-advice"),
        ("http://0x7f.1", "http://127.0.0.1/.well-known/traffic-advice"),
        ("http://[::1]:8000", "http://[::1]:8000/.well-known/traffic-advice"),
        ("http://localhost", "http://localhost/.well-known/traffic-advice"),
        ("http://a.localhost.", "http://a.localhost./.well-known/traffic-advice"),
        ("http://example.com", None),
        ("http://10.0.0.1", None),
        ("wss://example.com", None),
        ("ws://localhost", None),
        ("ftp://localhost", None),
        ("file:///etc/passwd", None),
        ("data:,", None),
        ("null", None),
        ("example.com", None),
        ("", None),
        ("https://", None),
    ],
)
def test_an_origin_has_a_traffic_advice_url_or_may_not_be_asked(origin: str, url: str | None) -> None:
    assert traffic_advice_url(origin) == url
    request = advice_request(origin, IDENTITY)
    assert (request and request.url) == url


def test_the_request_says_what_is_wanted_and_who_wants_it_and_nothing_else() -> None:
    request = advice_request("https://example.com", IDENTITY)
    assert request == AdviceRequest(
        "https://example.com/.well-known/traffic-advice",
        (("Accept", MEDIA_TYPE), ("Accept-Encoding", "identity"), ("User-Agent", "ExampleProxy")),
    )
    assert not request.is_conditional


def test_a_brand_name_that_is_not_ascii_is_sent_as_utf_8() -> None:
    request = advice_request("https://example.com", AgentIdentity([" Prüfer\ud800 ", "*"]))
    assert request is not None
    assert request.fields[-1][1].encode("latin-1") == "Prüfer?".encode()


@pytest.mark.parametrize("name", ["If-None-Match", "If-Modified-Since"])
def test_a_request_with_a_validator_is_conditional(name: str) -> None:
    assert AdviceRequest("https://example.com", (("Accept", "a"), (name, "b"))).is_conditional


@pytest.mark.parametrize(
    ("status", "result"),
    [
        *((status, UNREACHABLE) for status in (0, 429, 503)),
        *((status, None) for status in (300, 301, 302, 303, 304, 305, 307, 308)),
        *((status, None) for status in (100, 101, 103, 204, 205)),
        *(
            (status, None)
            for status in (400, 401, 403, 404, 410, 418, 428, 430, 451, 500, 501, 502, 504, 599, 600, 999)
        ),
        *((status, AdviceEntry(fraction=0.5)) for status in (200, 201, 202, 203, 206, 208, 226, 299)),
    ],
)
def test_the_status_settles_most(status: int, result: AdviceResult) -> None:
    assert interpret(AdviceResponse(status, TYPED, HALF), IDENTITY) == result
    assert needs_body(status, TYPED) is isinstance(result, AdviceEntry)
    untyped = interpret(AdviceResponse(status, [], None), IDENTITY)
    assert untyped is (UNREACHABLE if result is UNREACHABLE else None)


def test_a_network_error_is_unreachable() -> None:
    assert interpret(NETWORK_ERROR, IDENTITY) is UNREACHABLE


@pytest.mark.parametrize(
    ("content_type", "is_read"),
    [
        ([MEDIA_TYPE], True),
        (["application/TrafficAdvice+JSON ; charset=utf-16"], True),
        (["text/html", MEDIA_TYPE], True),
        ([f'text/html;a=",", {MEDIA_TYPE}'], True),
        ([MEDIA_TYPE, "*/*", "x"], True),
        ([MEDIA_TYPE, "text/html"], False),
        ([f'text/html;a=", {MEDIA_TYPE}'], False),
        (["application/json"], False),
        (["application/traffic-advice+json"], False),
        ([f"{MEDIA_TYPE} x"], False),
        ([""], False),
        ([], False),
    ],
)
def test_the_media_type_is_the_one_or_the_body_is_not_read(content_type: list[str], is_read: bool) -> None:
    fields = [("content-TYPE", value) for value in content_type]
    assert needs_body(200, fields) is is_read
    assert interpret(AdviceResponse(200, fields, HALF), IDENTITY) == (AdviceEntry(fraction=0.5) if is_read else None)


@pytest.mark.parametrize("body", [None, b"", b"{}", b"[]", b"[", HALF[:-1], HALF.ljust(MAX_BODY_BYTES + 1)])
def test_a_body_that_is_not_whole_or_not_advice_is_none(body: bytes | None) -> None:
    assert interpret(AdviceResponse(200, TYPED, body), IDENTITY) is None


def test_a_body_may_be_as_long_as_is_allowed() -> None:
    body = HALF + b" " * (MAX_BODY_BYTES - len(HALF))
    assert interpret(AdviceResponse(200, TYPED, body), IDENTITY) == AdviceEntry(fraction=0.5)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (NETWORK_ERROR, "no response received"),
        (NETWORK_ERROR._replace(failure="x" * 10_000), "no response received: xxx"),
        (AdviceResponse(200, TYPED, None, "x" * 10_000), "is incomplete: xxx"),
        (AdviceResponse(302, [], None), "redirects are not followed"),
        (AdviceResponse(503, [], None), "status 503"),
        (AdviceResponse(403, [], None), "status 403 is not an ok status"),
        (AdviceResponse(204, [], None), "status 204 has no body"),
        (AdviceResponse(200, [], None), "missing"),
        (AdviceResponse(200, [("content-type", "a/" + "b" * 10_000)], None), "not application/trafficadvice+json"),
        (AdviceResponse(200, TYPED, None), "is incomplete"),
        (AdviceResponse(200, TYPED, b" " * (MAX_BODY_BYTES + 1)), "longer than 524288 bytes"),
        (AdviceResponse(200, TYPED, b"["), "not JSON"),
        (AdviceResponse(200, TYPED, b"{}"), "not a list"),
        (AdviceResponse(200, TYPED, b"[]"), "no entry is for this agent"),
        (AdviceResponse(200, TYPED, HALF), "a fraction of 0.5 is wanted"),
        (AdviceResponse(200, TYPED, b'[{"user_agent":"*"}]'), "all traffic is wanted"),
        (AdviceResponse(200, TYPED, b'[{"user_agent":"*","disallow":true}]'), "traffic is disallowed"),
    ],
)
def test_every_result_has_a_reason(response: AdviceResponse, reason: str) -> None:
    interpretation = interpret_fully(response, IDENTITY)
    assert reason in interpretation.reason
    assert len(interpretation.reason) < 200
    assert interpretation.result == interpret(response, IDENTITY)
