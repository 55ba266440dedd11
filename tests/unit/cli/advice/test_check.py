import json

import pytest


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([{"user_agent": "*", "disallow": True}], {"disallowed": True, "fraction": 1}),
        ([{"user_agent": "prefetch-proxy", "fraction": 0.5}], {"disallowed": False, "fraction": 0.5}),
    ],
)
def test_a_clean_document(run, tmp_path, document, told):
    file = tmp_path / "advice.json"
    file.write_text(json.dumps(document))
    for arguments in ((), ("--content-type", "application/trafficadvice+json")):
        report = run("check", file, "--json", *arguments)
        assert (report.code, report.err) == (0, "")
        assert report.json == {"conforming": told, "deployed": told, "findings": []}
    text = run("check", "-", stdin=file.read_bytes())
    assert text.code == 0
    assert text.err == "-: 0 findings\n"
    assert text.out.count(b"\n") == 2


def test_findings_are_exit_1_and_say_code_severity_and_message(run):
    document = b'[{"user_agent":"prefetch-proxy","google_prefetch_proxy_eap":{"fraction":0.5}}]'
    report = run("check", "-", "--json", stdin=document)
    assert report.code == 1
    assert report.json["conforming"] == {"disallowed": False, "fraction": 1}
    assert report.json["deployed"] == {"disallowed": False, "fraction": 0.5}
    assert [finding["code"] for finding in report.json["findings"]] == ["early_access_only", "readers_differ"]
    assert {tuple(finding) for finding in report.json["findings"]} == {("code", "severity", "message")}
    text = run("check", "-", stdin=document)
    assert (text.code, text.err) == (1, "-: 2 findings\n")
    lines = text.out.decode().splitlines()
    assert lines[:2] == [
        "agents that follow the document: a fraction of 1",
        "the largest deployed proxy: a fraction of 0.5",
    ]
    assert lines[2].startswith("-: warning: entry 1: ")
    assert lines[2].endswith(" [early_access_only]")


def test_fields_of_a_file_are_looked_at_only_where_they_are_named(run):
    document = b'[{"user_agent":"*","disallow":true}]'
    assert run("check", "-", stdin=document).code == 0
    report = run("check", "-", "--content-type", "application/json", "--json", stdin=document)
    assert report.code == 1
    assert [finding["code"] for finding in report.json["findings"]] == ["media_type"]
    assert (report.json["conforming"], report.json["deployed"]) == (None, None)


def test_what_is_disallowed_or_nothing_is_told_in_words(run):
    assert (
        b"the largest deployed proxy: traffic is disallowed"
        in run("check", "-", stdin=b'[{"user_agent":"*","disallow":true}]').out
    )
    assert b"agents that follow the document: no advice" in run("check", "-", stdin=b"{}").out
