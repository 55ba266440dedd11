"""`headgate advice`; `fetch` and `check ORIGIN` against a server on loopback with scripted answers."""

import json
from functools import partial

import pytest

IDENTITY = "ExampleProxy,prefetch-proxy,*"
HALF = b'[{"user_agent":"*","fraction":0.5}]'


@pytest.fixture
def run(headgate):
    """Run `headgate advice`."""
    return partial(headgate, "advice")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Usage: headgate advice"),
        (["nope"], "no such command"),
        (["parse", "--identity", "A\nB"], "contains a control character"),
        (["parse", "--identity", "Example,Bot"], "must be a brand name, other names if any"),
        (["parse", "--identity", ""], "contains an empty name"),
        (["parse", "--identity", "A,,*"], "contains an empty name"),
        (["parse", "--identity", "A,*", "/nowhere/at.all"], "/nowhere/at.all: No such file or directory"),
        (["parse", "--identity", "A,*", "/"], "/: Is a directory"),
        (["fetch", "--identity", "A,*"], "missing argument 'ORIGIN'"),
        (["fetch", "https://localhost", "--ca", "/nowhere/at.all"], "--ca: '/nowhere/at.all' cannot be used: No such"),
        (["check"], "missing argument"),
        (["check", "example.com"], "example.com: no such file; for an origin pass its URL, https://example.com"),
        (["check", "https://localhost", "--content-type", "a/b"], "--content-type is for a FILE"),
        (["check", "http://example.com"], "advice is fetched only from https origins"),
    ],
)
def test_wrong_use_is_exit_2(run, words, said):
    told = run(*words)
    assert (told.code, told.out) == (2, b"")
    assert said in told.err


def test_a_file_and_standard_input_are_read_alike(run, tmp_path):
    file = tmp_path / "advice.json"
    file.write_bytes(b'[{"user_agent":"Ex\xc3\xa4mple","fraction":0.25}]')
    assert run("parse", file, "--identity", " Exämple , *").json == {"disallowed": False, "fraction": 0.25}
    assert run("parse", "--identity", "Exämple,*", stdin=file.read_bytes()).json["fraction"] == 0.25
    assert b"-0" not in run("parse", "-", stdin=b'[{"user_agent":"*","fraction":-0.0}]').out
    told = run("parse", file, "--identity", "Other,*")
    assert (told.code, told.out) == (0, b"null\n")
    assert told.err == "no entry applies to --identity 'Other,*'; the document has entries for Exämple\n"
    for document in (b"{", b'{"a": 1}', b"1", b"[1]"):
        assert (
            run("parse", "-", stdin=document).err == "no entry applies to --identity 'headgate,*'; it has no entries\n"
        )


def test_a_document_of_more_than_16_mib_is_an_error(run):
    long = b'[{"user_agent":"*","fraction":0.5}' + b" " * (1 << 20) + b"]"
    assert run("parse", "-", "--identity", "A,*", stdin=long).json == {"disallowed": False, "fraction": 0.5}
    told = run("parse", "-", "--identity", "A,*", stdin=bytes((16 << 20) + 1))
    assert (told.code, told.out) == (2, b"")
    assert told.err == "headgate: -: longer than 16 MiB, the limit for traffic advice\n"


def test_fetch_sends_one_request_and_prints_its_result(run, site):
    """Other results are those of the vectors, in tests/unit/advice."""
    site.advise(b'[{"user_agent":"prefetch-proxy","fraction":0.25}]')
    told = run("fetch", site.url, "--identity", IDENTITY, "--json")
    assert (told.code, list(told.json)) == (0, ["origin", "url", "result", "fresh_for", "reason"])
    assert told.json["result"] == {"disallowed": False, "fraction": 0.25}
    assert told.json["origin"] == site.url
    assert told.json["url"] == f"{site.url}/.well-known/traffic-advice"
    assert told.json["reason"]
    assert 1795 <= told.json["fresh_for"] <= 1800
    ((path, fields),) = site.asked
    assert path == "/.well-known/traffic-advice"
    assert not {"cookie", "authorization", "referer"} & fields.keys()


def test_a_truncated_response_is_no_advice_and_a_redirect_is_not_followed(run, site):
    for status, fields in ((200, {"Content_Length": "99"}), (302, {"Location": "/elsewhere"})):
        site.advise(HALF, status, Content_Type="application/trafficadvice+json", **fields)
        told = run("fetch", site.url, "--json")
        assert (told.code, told.json["result"]) == (1, None)
    assert set(site.paths) == {"/.well-known/traffic-advice"}


def test_only_the_origin_of_a_url_is_used(run, site):
    site.advise(HALF)
    for url in (f"http://user:password@127.1:{site.port}/a/b?c=d#e", f"HTTP://0x7F.1:{site.port}"):
        told = run("fetch", url, "--identity", IDENTITY, "--json")
        assert (told.code, told.json["origin"]) == (0, site.url)
    assert "authorization" not in {name for _, fields in site.asked for name in fields}
    assert "password" not in str(site.asked)


@pytest.mark.parametrize("url", ["ws://127.0.0.1:{}", "ftp://127.0.0.1:{}", "file://127.0.0.1:{}/", "a b"])
def test_advice_is_fetched_from_https_origins_and_this_machine_only(run, site, url):
    told = run("fetch", url.format(site.port), "--identity", IDENTITY, "--json")
    assert told.code == 1
    assert (told.json["url"], told.json["result"], told.json["fresh_for"]) == (None, None, None)
    assert url != "a b" or told.json["reason"] == "invalid URL; expected a form such as https://example.com"
    assert site.asked == []
    assert run("fetch", "http://10.0.0.1", "--identity", IDENTITY).out.count(b"\n") == 1


def test_an_unreachable_origin_is_reported_with_its_retry_after(run, site):
    site.advise(b"", 503, Retry_After="120")
    told = run("fetch", site.url, "--identity", IDENTITY, "--json")
    assert (told.code, told.json["result"], told.json["fresh_for"]) == (1, "unreachable", 120)
    said = run("fetch", site.url, "--identity", IDENTITY)
    assert said.out.decode() == f"{site.url}: status 503: the server is unavailable; ask again in 120 s\n"


def test_check_of_an_origin_includes_its_response_fields(run, site):
    site.advise(HALF, Content_Type="application/trafficadvice+json", Cache_Control="max-age=63072000")
    told = run("check", site.url, "--json")
    assert told.code == 1
    assert told.json["conforming"] == {"disallowed": False, "fraction": 0.5}
    assert [finding["code"] for finding in told.json["findings"]] == ["fresh_too_long", "nosniff"]
    ((_, fields),) = site.asked
    assert fields["user-agent"] == "Chrome Privacy Preserving Prefetch Proxy"


def test_check_explains_that_403_is_not_an_opt_out(run, site):
    site.advise(b"no", 403)
    told = run("check", site.url, "--json")
    assert (told.code, told.json["conforming"]) == (1, None)
    assert [finding["code"] for finding in told.json["findings"]] == ["no_opt_out"]


def test_check_reads_a_document_with_the_wrong_media_type(run, site):
    site.advise(b"{}", Content_Type="application/json", X_Content_Type_Options="nosniff")
    told = run("check", site.url, "--json")
    assert [finding["code"] for finding in told.json["findings"]] == ["media_type", "not_a_list"]


def test_the_default_identity_is_every_agent(run, site):
    site.advise(b'[{"user_agent":"ExampleBot","disallow":true},{"user_agent":"*","fraction":0.5}]')
    assert run("fetch", site.url, "--json").json["result"] == {"disallowed": False, "fraction": 0.5}
    assert run("fetch", site.url, "--identity", "*", "--json").json["result"]["fraction"] == 0.5
    assert run("fetch", site.url, "--identity", "ExampleBot", "--json").json["result"]["disallowed"]
    told = run("fetch", site.url, "--identity", "Other, ExampleBot, *", "--json")
    assert told.json["result"]["disallowed"]
    assert [fields["user-agent"] == "headgate" for _, fields in site.asked] == [True, True, False, False]


def test_an_origin_without_a_scheme_is_an_https_origin(run):
    told = run("fetch", "127.0.0.1:1", "--json")
    assert (told.json["origin"], told.json["result"]) == ("https://127.0.0.1:1", "unreachable")


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([{"user_agent": "*", "disallow": True}], {"disallowed": True, "fraction": 1}),
        ([{"user_agent": "prefetch-proxy", "fraction": 0.5}], {"disallowed": False, "fraction": 0.5}),
    ],
)
def test_a_document_without_findings_exits_with_0(run, tmp_path, document, told):
    file = tmp_path / "advice.json"
    file.write_text(json.dumps(document))
    for arguments in ((), ("--content-type", "application/trafficadvice+json")):
        report = run("check", file, "--json", *arguments)
        assert (report.code, report.err) == (0, "")
        assert report.json == {"conforming": told, "findings": []}
    text = run("check", "-", stdin=file.read_bytes())
    assert text.code == 0
    assert text.err == "-: 0 findings\n"
    assert text.out.count(b"\n") == 1


def test_findings_exit_with_1_and_have_code_severity_and_message(run):
    document = b'[{"user_agent":"prefetch-proxy","disallow":1,"fraction":0.5}]'
    report = run("check", "-", "--json", stdin=document)
    assert report.code == 1
    assert report.json["conforming"] == {"disallowed": False, "fraction": 0.5}
    message = "entry 1: disallow is a number, and only true disallows"
    assert report.json["findings"] == [{"code": "disallow_type", "severity": "error", "message": message}]
    text = run("check", "-", stdin=document)
    assert (text.code, text.err) == (1, "-: 1 finding\n")
    assert text.out.decode() == f"prefetch proxies read: a fraction of 0.5\n-: error: {message} [disallow_type]\n"


def test_the_media_type_of_a_file_is_checked_only_with_content_type(run):
    document = b'[{"user_agent":"*","disallow":true}]'
    assert run("check", "-", stdin=document).code == 0
    report = run("check", "-", "--content-type", "application/json", "--json", stdin=document)
    assert report.code == 1
    assert [finding["code"] for finding in report.json["findings"]] == ["media_type"]
    assert report.json["conforming"] is None
