"""Findings in what an origin answers."""

import pytest

from headgate.advice import MEDIA_TYPE
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.advice.lint import lint_response

NOW = 784_111_777.0
FIELDS = [("Content-Type", MEDIA_TYPE), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "max-age=3600")]
DOCUMENT = b'[{"user_agent":"*","disallow":true}]'


def codes(
    status: int = 200, fields: object = (), body: bytes | None = DOCUMENT, *, is_secure: bool = True
) -> list[str]:
    given = {name.lower() for name, _ in fields}
    response = AdviceResponse(status, [*(pair for pair in FIELDS if pair[0].lower() not in given), *fields], body)
    return [finding.code for finding in lint_response(response, now=NOW, is_secure=is_secure).findings]


def test_what_is_served_by_the_book_has_nothing_to_find() -> None:
    assert codes() == []
    assert codes(fields=[("x-content-type-options", " NoSniff , x")]) == []
    response = AdviceResponse(200, FIELDS[:2], DOCUMENT)
    assert lint_response(response, now=NOW, is_secure=True).findings == ()


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ([("Cache-Control", "max-age=172800")], []),
        ([("Cache-Control", "max-age=172801")], ["fresh_too_long"]),
        ([("Cache-Control", "max-age=63072000")], ["fresh_too_long"]),
        ([("Cache-Control", "max-age=600")], []),
        ([("Cache-Control", "max-age=599")], ["fresh_too_short"]),
        ([("Cache-Control", "no-store")], ["fresh_too_short"]),
        ([("Cache-Control", "max-age=x")], ["fresh_too_short"]),
        ([("Cache-Control", ""), ("Expires", "0")], ["fresh_too_short"]),
        ([("X-Content-Type-Options", "")], ["nosniff"]),
        ([("X-Content-Type-Options", "x, nosniff")], ["nosniff"]),
        ([("Content-Type", "application/json")], ["media_type"]),
    ],
)
def test_fields_that_do_not_serve_are_found(fields: list[tuple[str, str]], found: list[str]) -> None:
    assert codes(fields=fields) == found


@pytest.mark.parametrize(
    ("status", "found"),
    [
        *((status, ["no_opt_out"]) for status in (401, 403)),
        *((status, ["unreachable"]) for status in (429, 503)),
        *((status, ["redirect"]) for status in (301, 302, 307)),
        *((status, ["not_served"]) for status in (404, 410)),
        *((status, ["status"]) for status in (204, 205, 418, 500)),
        *((status, ["readers_differ"]) for status in (201, 203)),
    ],
)
def test_a_status_that_brings_no_advice_is_found(status: int, found: list[str]) -> None:
    assert codes(status) == found


def test_an_origin_that_does_not_answer_is_found() -> None:
    report = lint_response(NETWORK_ERROR, now=NOW, is_secure=True)
    assert (report.conforming, report.deployed) == (None, None)
    assert [finding.code for finding in report.findings] == ["unreachable"]


def test_a_body_that_is_cut_is_found() -> None:
    assert codes(body=None) == ["body"]
    assert codes(fields=[("Content-Type", "text/html")], body=None) == ["media_type"]


def test_a_document_behind_the_wrong_media_type_is_looked_at() -> None:
    assert codes(fields=[("Content-Type", "text/html")], body=b"{}") == ["media_type", "not_a_list"]


def test_the_deployed_proxy_asks_https_origins_only() -> None:
    assert codes(is_secure=False) == ["readers_differ"]
    report = lint_response(AdviceResponse(200, FIELDS, DOCUMENT), now=NOW, is_secure=False)
    assert "which asks https origins only" in report.findings[0].message
    assert report.deployed is None
