import json

from headgate.advice import MEDIA_TYPE
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.advice.lint import AdviceFinding, lint_document, lint_response
from headgate.advice.parser import AdviceEntry

NOW = 784_111_777.0
FIELDS = [("Content-Type", MEDIA_TYPE), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "max-age=3600")]
DOCUMENT = b'[{"user_agent":"*","disallow":true}]'


def document_codes(document, content_type=None):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return [finding.code for finding in lint_document(body, content_type=content_type).findings]


def response_codes(status=200, fields=(), body=DOCUMENT):
    given = {name.lower() for name, _ in fields}
    response = AdviceResponse(status, [*(pair for pair in FIELDS if pair[0].lower() not in given), *fields], body)
    return [finding.code for finding in lint_response(response, now=NOW).findings]


DOCUMENTS = [
    ([{"user_agent": "prefetch-proxy", "disallow": True}], []),
    ([{"user_agent": "prefetch-proxy", "fraction": 0.5}], []),
    ([{"user_agent": "prefetch-proxy", "disallow": False}, {"user_agent": "*", "disallow": True}], []),
    ([{"user_agent": "ExampleBot"}, {"user_agent": "*", "fraction": 0}], []),
    ([{"user_agent": "ExampleBot", "disallow": True}], []),
    ([{"user_agent": "*", "disallow": True, "comment": "busy", "x": [[{}]]}], []),
    (b'[{"user_agent":"*","disallow":true,"x":"\xef\xbf\xbd"}]', []),
    # The document.
    ({"user_agent": "*", "disallow": True}, ["not_a_list"]),
    ("disallow", ["not_a_list"]),
    (None, ["not_a_list"]),
    ([], ["empty"]),
    (b"", ["json"]),
    (b'[{"user_agent":"*",}]', ["json"]),
    (b'[{"user_agent":"*","fraction":NaN}]', ["json"]),
    (b"[" * 200_000, ["json"]),
    (b'[{"user_agent":"*","disallow":true,"x":"\xff"}]', ["utf8"]),
    (["*", {"user_agent": "*", "disallow": True}], ["not_a_map"]),
    ([None, 1, [], True], ["not_a_map"] * 4),
    # Members.
    ([{"user_agent": "*", "fraction": "0.5", "disallow": True}], ["fraction_type"]),
    ([{"user_agent": "*", "fraction": "0.5"}], ["fraction_type"]),
    ([{"user_agent": "*", "fraction": True, "disallow": False}], ["fraction_type"]),
    ([{"user_agent": "*", "fraction": 50}], ["fraction_range"]),
    (b'[{"user_agent":"*","fraction":1e999}]', ["fraction_range"]),
    ([{"user_agent": "*", "fraction": -0.5}], ["fraction_range"]),
    ([{"user_agent": "*", "disallow": "true", "fraction": 1}], ["disallow_type"]),
    ([{"user_agent": "*", "disallow": 1}], ["disallow_type"]),
    ([{"user_agent": "*", "disallow": True, "fraction": 0.5}], []),
    ([{"user_agent": "*"}], []),
    ([{"user_agent": "*", "dissalow": True, "fraction": 1}], ["unknown_member"]),
    ([{"user_agent": "*", "disallowed": True, "fraction": 1}], ["unknown_member"]),
    ([{"user_agent": "*", "DISALLOW": True, "fraction": 1}], ["unknown_member"]),
    # Agents.
    ([{"User_Agent": "*", "disallow": True}], ["unknown_member", "user_agent"]),
    ([{"user-agent": "*", "disallow": True}], ["unknown_member", "user_agent"]),
    ([{"user_agent": "Prefetch-Proxy", "disallow": True}], ["user_agent"]),
    ([{"user_agent": "prefetch_proxy", "disallow": True}], ["user_agent"]),
    ([{"user_agent": " * ", "disallow": True}], ["user_agent"]),
    ([{"user_agent": ["*"], "disallow": True}], ["user_agent"]),
    ([{"user_agent": "*", "disallow": True}, {"user_agent": [], "x": {}}], ["user_agent"]),
    ([{"disallow": True}], ["user_agent"]),
    ([{"user_agent": "*", "fraction": 0.5}, {"user_agent": "*", "disallow": True}], ["unreachable_entry"]),
]


def test_findings_in_documents():
    for document, expected in DOCUMENTS:
        assert document_codes(document) == expected, document
        assert document_codes(document, f"{MEDIA_TYPE}; charset=utf-8") == expected, document


def test_wrong_media_type_is_named_and_known_mistakes_are_explained():
    for content_type, words in (
        ("application/json", "early draft"),
        ("application/traffic-advice+json", "hyphen"),
        ("text/html; charset=utf-8", "text/html"),
        ("a/" + "b" * 10_000, "a/bbb"),
        ("", "the media type is missing or malformed"),
        ("nonsense", "the media type is missing or malformed"),
    ):
        report = lint_document(DOCUMENT, content_type=content_type)
        (finding,) = report.findings
        assert finding.code == "media_type", content_type
        assert words in finding.message
        assert len(finding.message) < 200
        assert report.conforming is None


def test_a_report_has_what_prefetch_proxies_read():
    report = lint_document(b'[{"user_agent":"*"},{"user_agent":"prefetch-proxy","disallow":1,"fraction":0.25}]')
    assert report.conforming == AdviceEntry(fraction=0.25)
    message = "entry 2: disallow is a number, and only true disallows"
    assert report.findings == (AdviceFinding("disallow_type", "error", message),)


def test_findings_in_fields():
    for fields, expected in (
        ([], []),
        ([("x-content-type-options", " NoSniff , x")], []),
        ([("Cache-Control", "")], []),
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
    ):
        assert response_codes(fields=fields) == expected, fields


def test_findings_by_status():
    for statuses, expected in (
        ((401, 403), "no_opt_out"),
        ((429, 503), "unreachable"),
        ((301, 302, 307), "redirect"),
        ((404, 410), "not_served"),
        ((204, 205, 418, 500), "status"),
    ):
        for status in statuses:
            assert response_codes(status) == [expected], status


def test_unreachable_origin_is_reported():
    report = lint_response(NETWORK_ERROR, now=NOW)
    assert report.conforming is None
    assert [finding.code for finding in report.findings] == ["unreachable"]


def test_document_with_the_wrong_media_type_is_linted():
    assert response_codes(fields=[("Content-Type", "text/html")], body=b"{}") == ["media_type", "not_a_list"]
