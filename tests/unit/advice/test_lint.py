import json

from headgate.advice import MEDIA_TYPE
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.advice.lint import (
    DEPLOYED,
    MAX_FINDINGS,
    SEVERITIES,
    AdviceFinding,
    lint_document,
    lint_response,
    read_as_deployed,
)
from headgate.advice.parser import AdviceEntry

NOW = 784_111_777.0
FIELDS = [("Content-Type", MEDIA_TYPE), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "max-age=3600")]
DOCUMENT = b'[{"user_agent":"*","disallow":true}]'


def document_codes(document, content_type=None):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return [finding.code for finding in lint_document(body, content_type=content_type).findings]


def response_codes(status=200, fields=(), body=DOCUMENT, *, is_secure=True):
    given = {name.lower() for name, _ in fields}
    response = AdviceResponse(status, [*(pair for pair in FIELDS if pair[0].lower() not in given), *fields], body)
    return [finding.code for finding in lint_response(response, now=NOW, is_secure=is_secure).findings]


DOCUMENTS = [
    # Both readers read these alike.
    ([{"user_agent": "prefetch-proxy", "disallow": True}], []),
    ([{"user_agent": "prefetch-proxy", "fraction": 0.5}], []),
    ([{"user_agent": "prefetch-proxy", "fraction": 1.0, "google_prefetch_proxy_eap": {"fraction": 1.0}}], []),
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
    (b'[{"user_agent":"*","disallow":true,"x":"\xff"}]', ["utf8", "readers_differ"]),
    (["*", {"user_agent": "*", "disallow": True}], ["not_a_map"]),
    ([None, 1, [], True], ["not_a_map"] * 4),
    # Members.
    ([{"user_agent": "prefetch-proxy", "google_prefetch_proxy_eap": {"fraction": 1.0}}], ["early_access_only"]),
    (
        [{"user_agent": "prefetch-proxy", "google_prefetch_proxy_eap": {"fraction": 0.5}}],
        ["early_access_only", "readers_differ"],
    ),
    ([{"user_agent": "*", "fraction": "0.5", "disallow": True}], ["fraction_type"]),
    ([{"user_agent": "*", "fraction": "0.5"}], ["fraction_type", "readers_differ"]),
    ([{"user_agent": "*", "fraction": True, "disallow": False}], ["fraction_type"]),
    ([{"user_agent": "*", "fraction": 50}], ["fraction_range"]),
    (b'[{"user_agent":"*","fraction":1e999}]', ["fraction_range"]),
    ([{"user_agent": "*", "fraction": -0.5}], ["fraction_range", "readers_differ"]),
    ([{"user_agent": "*", "disallow": "true", "fraction": 1}], ["disallow_type"]),
    ([{"user_agent": "*", "disallow": 1}], ["disallow_type", "readers_differ"]),
    ([{"user_agent": "*", "disallow": True, "fraction": 0.5}], ["readers_differ"]),
    ([{"user_agent": "*"}], ["readers_differ"]),
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
    (
        [{"user_agent": "*", "disallow": True}, {"user_agent": "prefetch-proxy", "fraction": 0.5}],
        ["order", "readers_differ"],
    ),
    ([{"user_agent": "*", "fraction": 0.5}, {"user_agent": "prefetch-proxy", "fraction": 0.5}], ["order"]),
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
        assert (report.conforming, report.deployed) == (None, None)


def test_difference_between_the_readers_is_reported():
    report = lint_document(b'[{"user_agent":"*","disallow":true,"fraction":0.25}]')
    assert report.conforming == AdviceEntry(disallowed=True, fraction=0.25)
    assert report.deployed == AdviceEntry(fraction=0.25)
    message = (
        "agents that follow the document read that traffic is disallowed,"
        " the largest deployed prefetch proxy reads a fraction of 0.25"
    )
    assert report.findings == (AdviceFinding("readers_differ", "warning", message),)


def test_quotations_are_escaped_and_short():
    findings = lint_document(json.dumps([{"user_agent": "\x1b[31m\n" * 1000}] * 2).encode()).findings
    assert [finding.code for finding in findings] == ["unreachable_entry"]
    for finding in findings:
        assert finding.message.isprintable()
        assert len(finding.message) < 400


def test_number_of_findings_is_bounded():
    assert document_codes(b"[" + b"1," * 200_000 + b"1]") == ["not_a_map"] * MAX_FINDINGS


def test_severity_is_that_of_the_code():
    assert set(SEVERITIES.values()) == {"error", "warning"}
    for finding in lint_document(b'[1,{"user_agent":"*"},{"user_agent":"*"}]').findings:
        assert finding.severity == SEVERITIES[finding.code]


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
        ((201, 203), "readers_differ"),
    ):
        for status in statuses:
            assert response_codes(status) == [expected], status


def test_unreachable_origin_is_reported():
    report = lint_response(NETWORK_ERROR, now=NOW, is_secure=True)
    assert (report.conforming, report.deployed) == (None, None)
    assert [finding.code for finding in report.findings] == ["unreachable"]


def test_incomplete_body_is_reported():
    assert response_codes(body=None) == ["body"]
    assert response_codes(fields=[("Content-Type", "text/html")], body=None) == ["media_type"]


def test_document_with_the_wrong_media_type_is_linted():
    assert response_codes(fields=[("Content-Type", "text/html")], body=b"{}") == ["media_type", "not_a_list"]


def test_deployed_proxy_asks_https_origins_only():
    assert response_codes(is_secure=False) == ["readers_differ"]
    report = lint_response(AdviceResponse(200, FIELDS, DOCUMENT), now=NOW, is_secure=False)
    assert "which asks https origins only" in report.findings[0].message
    assert report.deployed is None


def deployed(document, *, status=200, fields=FIELDS, is_secure=True):
    return read_as_deployed(AdviceResponse(status, fields, document), is_secure=is_secure)


DEPLOYED_MEMBERS = [
    (b'"fraction":0.5', AdviceEntry(fraction=0.5)),
    (b'"fraction":0.5,"disallow":true', AdviceEntry(fraction=0.5)),
    (b'"fraction":0,"disallow":false', AdviceEntry(fraction=0.0)),
    (b'"fraction":1.5', AdviceEntry(fraction=1.0)),
    (b'"fraction":-1', AdviceEntry(fraction=0.0)),
    (b'"fraction":"0.5","disallow":true', AdviceEntry(disallowed=True)),
    (b'"disallow":true', AdviceEntry(disallowed=True)),
    (b'"disallow":false', AdviceEntry(fraction=1.0)),
    (b'"disallow":"true"', AdviceEntry(fraction=0.0)),
    (b'"google_prefetch_proxy_eap":{"fraction":0.25}', AdviceEntry(fraction=0.25)),
    (b'"google_prefetch_proxy_eap":{"fraction":0.25},"fraction":0.5', AdviceEntry(fraction=0.5)),
    (b'"google_prefetch_proxy_eap":{"fraction":0.25},"disallow":true', AdviceEntry(disallowed=True)),
    (b'"google_prefetch_proxy_eap":{}', AdviceEntry(fraction=0.0)),
    (b'"google_prefetch_proxy_eap":{"fraction":true}', AdviceEntry(fraction=0.0)),
    (b'"google_prefetch_proxy_eap":0.5', AdviceEntry(fraction=0.0)),
    (b'"x":1', AdviceEntry(fraction=0.0)),
]


def test_deployed_proxy_prefers_fraction_then_disallow_then_early_access():
    for members, entry in DEPLOYED_MEMBERS:
        assert deployed(b'[{"user_agent":"*",' + members + b"}]") == entry, members


def test_deployed_proxy_uses_the_first_entry_that_names_it():
    assert DEPLOYED == ("Chrome Privacy Preserving Prefetch Proxy", "prefetch-proxy", "*")
    for document, fraction in (
        (b'[{"user_agent":"*","fraction":0.1},{"user_agent":"prefetch-proxy","fraction":0.2}]', 0.1),
        (b'[{"user_agent":"prefetch-proxy","fraction":0.2},{"user_agent":"*","fraction":0.1}]', 0.2),
        (b'[{"user_agent":"other","fraction":0.3},{"user_agent":"*","fraction":0.1}]', 0.1),
        (b'[null,[],{"user_agent":1},{"user_agent":"*","fraction":0.1}]', 0.1),
        (b'\xef\xbb\xbf[{"user_agent":"*","fraction":0.1}]', 0.1),
    ):
        assert deployed(document) == AdviceEntry(fraction=fraction), document


def test_deployed_proxy_requires_https_status_200_the_media_type_and_a_valid_document():
    for document in (b"", b"{}", b"[]", b"[", b'[{"user_agent":"other"}]', b'[{"user_agent":"*","x":"\xff"}]', None):
        assert deployed(document) is None, document
    assert deployed(DOCUMENT, is_secure=False) is None
    assert deployed(DOCUMENT, status=203) is None
    assert deployed(DOCUMENT, fields=[("Content-Type", "application/json")]) is None
    assert read_as_deployed(NETWORK_ERROR) is None
