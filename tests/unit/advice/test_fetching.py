import gzip
import tracemalloc
import zlib

from headgate.advice import MEDIA_TYPE, AgentIdentity
from headgate.advice.fetching import (
    MAX_BODY_BYTES,
    NETWORK_ERROR,
    AdviceRequest,
    AdviceResponse,
    ResponseCollector,
    advice_request,
    interpret,
    interpret_fully,
    needs_body,
    too_late,
    traffic_advice_url,
)
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from tests.quotes import quotes

IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])
HALF = b'[{"user_agent":"*","fraction":0.5}]'
TYPED = [("Content-Type", MEDIA_TYPE)]

ORIGINS = [
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
]


@quotes(
    "traffic-advice 5",
    "To generate a traffic advice URL for origin origin, run the following steps: 1. If origin is not a "
    "tuple origin, return failure.",
    "2. If origin's scheme is not an HTTP(S) scheme, return failure.",
    "3. If origin is not a potentially trustworthy origin, return failure.",
    "4. Return a new URL as follows: scheme origin's scheme host origin's host port origin's port path « "
    '".well-known", "traffic-advice" »',
)
def test_only_trustworthy_http_origins_have_a_traffic_advice_url():
    for origin, url in ORIGINS:
        assert traffic_advice_url(origin) == url, origin
        request = advice_request(origin, IDENTITY)
        assert (request and request.url) == url, origin


@quotes(
    "traffic-advice 4",
    "Each agent should have an brand name that specifically identifies it (such as PollyPrefetchProxy).",
)
@quotes(
    "traffic-advice 5",
    "2. Let request be a request as follows: method `GET` URL url",
    'client null credentials mode "omit"',
)
def test_request_identifies_the_agent_and_nothing_else():
    request = advice_request("https://example.com", IDENTITY)
    assert request == AdviceRequest(
        "https://example.com/.well-known/traffic-advice",
        (("Accept", MEDIA_TYPE), ("Accept-Encoding", "identity"), ("User-Agent", "ExampleProxy")),
    )
    assert not request.is_conditional


def test_brand_name_is_sent_as_utf_8():
    request = advice_request("https://example.com", AgentIdentity([" Prüfer\ud800 ", "*"]))
    assert request.fields[-1][1].encode("latin-1") == "Prüfer?".encode()


def test_request_with_a_validator_is_conditional():
    for name in ("If-None-Match", "If-Modified-Since"):
        assert AdviceRequest("https://example.com", (("Accept", "a"), (name, "b"))).is_conditional


STATUSES = {
    UNREACHABLE: (0, 429, 503),
    None: (
        *(100, 101, 103, 204, 205, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 403, 404, 410, 418, 428, 430, 451),
        *(500, 501, 502, 504, 599, 600, 999),
    ),
    AdviceEntry(fraction=0.5): (200, 201, 202, 203, 206, 208, 226, 299),
}


@quotes("traffic-advice 5", "3. Let fetchController be null.", '3. Assert: response’s type is "basic".')
@quotes("traffic-advice 3", 'A traffic advice result is null, a traffic advice entry, or "unreachable".')
@quotes(
    "traffic-advice 5",
    "4. Let processResponse be the following steps, given response response: 1. If response's type is "
    '"error", then terminate fetchController, run whenComplete with "unreachable", and return.',
    '2. If response\'s type is "opaqueredirect", then terminate fetchController, run whenComplete with '
    "null, and return.",
    "4. If response's status is 429 (Too Many Requests; see [RFC6585]) or 503 (Service Unavailable; see "
    '[HTTP-SEMANTICS]), then terminate fetchController, run whenComplete with "unreachable", and return.',
    "5. If response's status is not an ok status, then terminate fetchController, run whenComplete with "
    "null and return.",
    "6. If response's status is a null body status, then terminate fetchController, run whenComplete with"
    " null and return.",
)
def test_result_by_status():
    for result, statuses in STATUSES.items():
        for status in statuses:
            assert interpret(AdviceResponse(status, TYPED, HALF), IDENTITY) == result, status
            assert needs_body(status, TYPED) is isinstance(result, AdviceEntry), status
            untyped = interpret(AdviceResponse(status, [], None), IDENTITY)
            assert untyped is (UNREACHABLE if result is UNREACHABLE else None), status


CONTENT_TYPES = [
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
]


@quotes(
    "traffic-advice 5",
    "7. Let mimeType be the result of extracting a MIME type from response's header list.",
    '8. If mimeType is failure or its essence is not "application/trafficadvice+json", then terminate '
    "fetchController, run whenComplete with null and return.",
)
def test_body_of_another_media_type_is_not_read():
    for content_type, is_read in CONTENT_TYPES:
        fields = [("content-TYPE", value) for value in content_type]
        assert needs_body(200, fields) is is_read, content_type
        result = interpret(AdviceResponse(200, fields, HALF), IDENTITY)
        assert result == (AdviceEntry(fraction=0.5) if is_read else None), content_type


REASONS = [
    (NETWORK_ERROR._replace(failure=too_late()), "no response received: not within 5 s"),
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
    (AdviceResponse(200, TYPED, HALF.ljust(MAX_BODY_BYTES + 1)), "longer than 524288 bytes"),
    (AdviceResponse(200, TYPED, b""), "not JSON"),
    (AdviceResponse(200, TYPED, HALF[:-1]), "not JSON"),
    (AdviceResponse(200, TYPED, b"{}"), "not a list"),
    (AdviceResponse(200, TYPED, b"[]"), "no entry is for this agent"),
    (AdviceResponse(200, TYPED, HALF.ljust(MAX_BODY_BYTES)), "a fraction of 0.5 is wanted"),
    (AdviceResponse(200, TYPED, b'[{"user_agent":"*"}]'), "all traffic is wanted"),
    (AdviceResponse(200, TYPED, b'[{"user_agent":"*","disallow":true}]'), "traffic is disallowed"),
]


@quotes(
    "traffic-advice 5",
    "5. Let processResponseEndOfBody be the following steps, given response response and null, failure or"
    " byte sequence body: 1. If body is not a byte sequence, then run whenComplete with null and return.",
)
def test_every_result_has_a_short_reason():
    for response, reason in REASONS:
        interpretation = interpret_fully(response, IDENTITY)
        assert reason in interpretation.reason
        assert len(interpretation.reason) < 200
        assert interpretation.result == interpret(response, IDENTITY)
        assert isinstance(interpretation.result, AdviceEntry) is (" wanted" in reason or " disallowed" in reason)


def collect(*pieces, coding=None):
    collector = ResponseCollector()
    assert collector.head(200, TYPED if coding is None else [*TYPED, ("Content-Encoding", coding)])
    for piece in pieces:
        if not collector.add(piece):
            break
    return collector.whole()


@quotes(
    "traffic-advice 5",
    "6. Fetch request with processResponse set to processResponse and processResponseEndOfBody set to "
    "processResponseEndOfBody, and set fetchController to the result.",
)
def test_body_is_collected_from_pieces_of_any_size():
    for size in range(1, len(HALF) + 1):
        pieces = [HALF[start : start + size] for start in range(0, len(HALF), size)]
        assert collect(*pieces) == AdviceResponse(200, TYPED, HALF)


def test_broken_response_has_no_body():
    collector = ResponseCollector()
    assert collector.broken("reset") == NETWORK_ERROR._replace(failure="reset")
    collector.head(200, TYPED)
    collector.add(HALF[:10])
    assert collector.broken("reset") == AdviceResponse(200, TYPED, None, "reset")


def test_body_that_does_not_matter_is_not_read():
    assert not ResponseCollector().head(404, TYPED)
    assert not ResponseCollector().head(200, [("Content-Type", "text/html")])
    assert ResponseCollector(lambda status, fields: True).head(404, [])


def test_body_longer_than_the_maximum_is_not_read_on():
    longest = b" " * MAX_BODY_BYTES
    assert collect(longest).body == longest
    collector = ResponseCollector()
    collector.head(200, TYPED)
    assert collector.add(longest)
    assert not collector.add(b" ")
    response = collector.whole()
    assert (response.body, response.failure) == (None, "the body is longer than 524288 bytes")


def test_gzip_is_decoded_and_other_codings_are_left():
    for coding, body in (
        ("gzip", gzip.compress(HALF)),
        (" X-GZIP", gzip.compress(HALF)),
        ("identity", HALF),
        ("", HALF),
        ("sdch", HALF),
        ("gzip", gzip.compress(b" " * (MAX_BODY_BYTES - len(HALF)) + HALF)),
    ):
        assert collect(body, coding=coding).body.lstrip() == HALF, coding


def test_damaged_or_too_long_gzip_leaves_no_body():
    for body, failure in (
        (HALF, "header"),
        (gzip.compress(HALF)[:-4], "the gzip coding of the body is incomplete"),
        (gzip.compress(HALF)[:10] + b"\xff" * 30, "invalid"),
        (b"", "the gzip coding of the body is incomplete"),
        (zlib.compress(HALF), "header"),
        (gzip.compress(b" " * (MAX_BODY_BYTES + 1)), "longer than 524288 bytes"),
        (gzip.compress(b" " * (1 << 28), 1)[:100_000], "longer than 524288 bytes"),
    ):
        response = collect(body, coding="gzip")
        assert (response.status, response.body) == (200, None), failure
        assert failure in response.failure


def test_decompression_bomb_is_not_decoded_to_its_end():
    coded = gzip.compress(bytes(64 * MAX_BODY_BYTES))
    tracemalloc.start()
    try:
        assert collect(coded, coding="gzip").body is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_BODY_BYTES


def test_body_shorter_than_its_content_length_is_incomplete():
    collector = ResponseCollector()
    collector.head(200, [*TYPED, ("Content-Length", str(len(HALF) + 1))])
    collector.add(HALF)
    assert collector.whole().body is None
    collector.head(200, [*TYPED, ("Content-Length", "1"), ("Transfer-Encoding", "chunked")])
    assert collector.whole().body == HALF
