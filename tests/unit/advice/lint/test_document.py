"""Findings in a document."""

import json
from typing import Any

import pytest

from headgate.advice.lint import MOST_FINDINGS, SEVERITIES, Finding, lint_document
from headgate.advice.parser import AdviceEntry


def codes(document: Any, content_type: str | None = None) -> list[str]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return [finding.code for finding in lint_document(body, content_type=content_type).findings]


@pytest.mark.parametrize(
    "document",
    [
        [{"user_agent": "prefetch-proxy", "disallow": True}],
        [{"user_agent": "prefetch-proxy", "fraction": 0.5}],
        [{"user_agent": "prefetch-proxy", "fraction": 1.0, "google_prefetch_proxy_eap": {"fraction": 1.0}}],
        [{"user_agent": "prefetch-proxy", "disallow": False}, {"user_agent": "*", "disallow": True}],
        [{"user_agent": "ExampleBot"}, {"user_agent": "*", "fraction": 0}],
        [{"user_agent": "ExampleBot", "disallow": True}],
        [{"user_agent": "*", "disallow": True, "comment": "busy", "x": [[{}]]}],
    ],
)
def test_a_document_that_all_read_alike_has_nothing_to_find(document: list[dict[str, Any]]) -> None:
    assert codes(document) == []
    assert codes(document, "application/trafficadvice+json; charset=utf-8") == []


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ([{"user_agent": "prefetch-proxy", "google_prefetch_proxy_eap": {"fraction": 1.0}}], ["early_access_only"]),
        (
            [{"user_agent": "prefetch-proxy", "google_prefetch_proxy_eap": {"fraction": 0.5}}],
            ["early_access_only", "readers_differ"],
        ),
        ({"user_agent": "*", "disallow": True}, ["not_a_list"]),
        ("disallow", ["not_a_list"]),
        (None, ["not_a_list"]),
        ([], ["empty"]),
        ([{"user_agent": "*", "fraction": "0.5", "disallow": True}], ["fraction_type"]),
        ([{"user_agent": "*", "fraction": "0.5"}], ["fraction_type", "readers_differ"]),
        ([{"user_agent": "*", "fraction": True, "disallow": False}], ["fraction_type"]),
        ([{"user_agent": "*", "fraction": 50}], ["fraction_range"]),
        ([{"user_agent": "*", "fraction": -0.5}], ["fraction_range", "readers_differ"]),
        ([{"user_agent": "*", "disallow": "true", "fraction": 1}], ["disallow_type"]),
        ([{"user_agent": "*", "disallow": 1}], ["disallow_type", "readers_differ"]),
        ([{"user_agent": "*", "fraction": 0.5}, {"user_agent": "*", "disallow": True}], ["unreachable_entry"]),
        ([{"user_agent": "*", "disallow": True, "fraction": 0.5}], ["readers_differ"]),
        ([{"user_agent": "*"}], ["readers_differ"]),
        (
            [{"user_agent": "*", "disallow": True}, {"user_agent": "prefetch-proxy", "fraction": 0.5}],
            ["order", "readers_differ"],
        ),
        ([{"user_agent": "*", "fraction": 0.5}, {"user_agent": "prefetch-proxy", "fraction": 0.5}], ["order"]),
        ([{"user_agent": "Prefetch-Proxy", "disallow": True}], ["user_agent"]),
        ([{"user_agent": "prefetch_proxy", "disallow": True}], ["user_agent"]),
        ([{"user_agent": " * ", "disallow": True}], ["user_agent"]),
        ([{"user_agent": ["*"], "disallow": True}], ["user_agent"]),
        ([{"user_agent": "*", "disallow": True}, {"user_agent": [], "x": {}}], ["user_agent"]),
        ([{"disallow": True}], ["user_agent"]),
        ([{"User_Agent": "*", "disallow": True}], ["unknown_member", "user_agent"]),
        ([{"user-agent": "*", "disallow": True}], ["unknown_member", "user_agent"]),
        ([{"user_agent": "*", "dissalow": True, "fraction": 1}], ["unknown_member"]),
        ([{"user_agent": "*", "disallowed": True, "fraction": 1}], ["unknown_member"]),
        (["*", {"user_agent": "*", "disallow": True}], ["not_a_map"]),
        ([None, 1, [], True], ["not_a_map"] * 4),
        (b"", ["json"]),
        (b'[{"user_agent":"*",}]', ["json"]),
        (b'[{"user_agent":"*","fraction":NaN}]', ["json"]),
        (b"[" * 200_000, ["json"]),
        (b'[{"user_agent":"*","disallow":true,"x":"\xff"}]', ["utf8", "readers_differ"]),
        (b'[{"user_agent":"*","disallow":true,"x":"\xef\xbf\xbd"}]', []),
        (b'[{"user_agent":"*","fraction":1e999}]', ["fraction_range"]),
    ],
)
def test_what_is_wrong_is_found(document: Any, found: list[str]) -> None:
    assert codes(document) == found


@pytest.mark.parametrize(
    ("content_type", "word"),
    [
        ("application/json", "early draft"),
        ("application/traffic-advice+json", "hyphen"),
        ("text/html; charset=utf-8", "text/html"),
        ("a/" + "b" * 10_000, "a/bbb"),
        ("", "the media type is missing or malformed"),
        ("nonsense", "the media type is missing or malformed"),
    ],
)
def test_a_wrong_media_type_is_found_and_told_from_the_usual_ones(content_type: str, word: str) -> None:
    report = lint_document(b'[{"user_agent":"*","disallow":true}]', content_type=content_type)
    (finding,) = report.findings
    assert finding.code == "media_type"
    assert word in finding.message
    assert (report.conforming, report.deployed) == (None, None)


def test_the_readers_and_their_difference_are_told() -> None:
    report = lint_document(b'[{"user_agent":"*","disallow":true,"fraction":0.25}]')
    assert report.conforming == AdviceEntry(disallowed=True, fraction=0.25)
    assert report.deployed == AdviceEntry(fraction=0.25)
    (finding,) = report.findings
    assert finding == Finding(
        "readers_differ",
        "warning",
        "agents that follow the document read that traffic is disallowed,"
        " the largest deployed prefetch proxy a fraction of 0.25",
    )


def test_strangers_words_are_quoted_escaped_and_cut() -> None:
    report = lint_document(
        json.dumps([{"user_agent": "\x1b[31m\n" * 1000}, {"user_agent": "\x1b[31m\n" * 1000}]).encode()
    )
    for finding in report.findings:
        assert finding.message.isprintable()
        assert len(finding.message) < 400


def test_there_is_an_end_to_findings() -> None:
    found = codes(b"[" + b"1," * 200_000 + b"1]")
    assert found == ["not_a_map"] * MOST_FINDINGS


def test_every_finding_is_as_severe_as_its_code() -> None:
    assert set(SEVERITIES.values()) == {"error", "warning"}
    for finding in lint_document(b'[1,{"user_agent":"*"},{"user_agent":"*"}]').findings:
        assert finding.severity == SEVERITIES[finding.code]
