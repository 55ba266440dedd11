"""`headgate get`, against a server with scripted answers."""

import io
import subprocess
import sys
from functools import partial
from urllib.request import Request

import pytest

from headgate.cli.polite_opener import _SafeRedirects
from headgate.errors import FetchError
from tests.unit.cli.conftest import serving

DISALLOWS = b'[{"user_agent":"*","disallow":true}]'
WANTS_ALL = b'[{"user_agent":"*"}]'


@pytest.fixture
def run(headgate):
    return partial(headgate, "get")


def test_the_body_is_printed(run, site):
    site.answer("/", (200, {}, b"hello\n"))
    assert run(site.url + "/") == (0, b"hello\n", "")
    assert site.paths == ["/"]


def test_the_body_is_written_to_the_output_file(run, site, tmp_path):
    site.answer("/", (200, {}, b"hello\n"))
    out = tmp_path / "body"
    assert run(site.url, "-o", out) == (0, b"", "")
    assert out.read_bytes() == b"hello\n"


def test_header_fields_are_sent(run, site):
    site.answer("/", (200, {}, b""))
    run(site.url, "-H", "Accept-Language: fr", "-H", "X-One: 1", "-H", "User-Agent: other/1")
    fields = site.asked[0][1]
    assert (fields["accept-language"], fields["x-one"], fields["user-agent"]) == ("fr", "1", "other/1")


@pytest.mark.parametrize(("status", "code"), [(200, 0), (204, 0), (304, 0), (399, 0), (400, 1), (404, 1), (503, 1)])
def test_the_exit_code_is_1_for_statuses_from_400(run, site, status, code):
    site.answer("/", (status, {}, b""))
    ran = run(site.url)
    assert ran.code == code
    assert (ran.err == "") == (code == 0)


def test_a_retry_waits_for_retry_after(run, site):
    site.answer("/", (503, {"Retry-After": "1"}, b"busy"), (200, {}, b"well"))
    ran = run(site.url, "--retry", 1, "--max-delay", 5, "--explain", "--json")
    assert ran.code == 0
    first, second = ran.json["attempts"]
    assert second["sent"] - first["sent"] >= 1
    assert (first["status"], first["retry_after"], second["status"]) == (503, "1", 200)
    assert ran.json["length"] == 4
    lines = ran.err.splitlines()
    assert lines[0] == f"GET {site.url}/: 503, Retry-After: 1"
    assert lines[1].startswith("waited 1.")
    assert lines[2] == f"GET {site.url}/: 200"


def test_a_retry_after_longer_than_max_delay_is_not_waited_for(run, site):
    site.answer("/", (503, {"Retry-After": "3600"}, b"busy"), (200, {}, b"well"))
    assert run(site.url, "--retry", 5, "--max-delay", 5) == (
        1,
        b"busy",
        f"headgate: {site.url}/: 503 Service Unavailable\n",
    )


def test_without_an_identity_no_advice_is_fetched(run, site):
    site.advise(DISALLOWS)
    site.answer("/", (200, {}, b""))
    assert run(site.url).code == 0
    assert site.paths == ["/"]


def test_advice_is_fetched_and_obeyed(run, site):
    site.advise(DISALLOWS)
    ran = run(site.url, "--identity", "ExampleBot,*", "--explain")
    assert (ran.code, ran.out) == (1, b"")
    assert site.paths == ["/.well-known/traffic-advice"]
    learned, refused = ran.err.splitlines()
    assert learned == f"{site.url}: traffic is disallowed; ask again in 1800 s"
    assert refused.startswith(
        f"headgate: {site.url} is held by its traffic advice, which disallows all traffic; retry at "
    )


def test_a_held_request_in_json(run, site):
    site.advise(DISALLOWS)
    ran = run(site.url, "--identity", "ExampleBot,*", "--json")
    assert (ran.code, ran.err) == (1, "")
    assert (ran.json["held"]["reason"], ran.json["held"]["target"]) == ("advice_disallowed", site.url)
    assert ran.json["status"] is None
    advice = ran.json["advice"][site.url]
    assert advice["result"] == {"disallowed": True, "fraction": 1}
    assert ran.json["held"]["release_time"] - advice["fresh_for"] > 1.7e9


def test_the_user_agent_begins_with_the_identity(run, site):
    site.advise(WANTS_ALL)
    site.answer("/", (200, {}, b""))
    assert run(site.url, "--identity", "ExampleBot,*", "--explain").code == 0
    asked, fetched = (fields["user-agent"] for _, fields in site.asked)
    assert asked == "ExampleBot"
    assert fetched.startswith("ExampleBot headgate/")


def test_each_redirect_is_a_separate_request(run, site):
    with serving() as other:
        other.advise(DISALLOWS)
        site.advise(WANTS_ALL)
        site.answer("/", (302, {"Location": "/next"}, b""))
        site.answer("/next", (302, {"Location": other.url + "/there"}, b""))
        ran = run(site.url, "--identity", "ExampleBot,*", "--json")
        assert ran.code == 1
        assert [attempt["url"] for attempt in ran.json["attempts"]] == [site.url + "/", site.url + "/next"]
        assert ran.json["held"]["target"] == other.url
        assert other.paths == ["/.well-known/traffic-advice"]


def test_20_redirects_are_an_error(run, site):
    site.answer("/", (302, {"Location": "/"}, b""))
    ran = run(site.url)
    assert ran.code == 1
    assert ran.err.startswith(f"headgate: {site.url}")
    assert ran.err.endswith(
        "redirected to '/', which is not followed: expected an http or https URL, after at most 20 redirects\n"
    )
    assert len(site.paths) == 21


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ftp://example.com/"], "invalid URL 'ftp://example.com/'; expected an http or https URL such as 'https://"),
        (
            ["example.com/a?b"],
            "invalid URL 'example.com/a?b'; expected an http or https URL such as 'https://example.c",
        ),
        (["localhost:8000"], "invalid URL 'localhost:8000'; expected an http or https URL such as 'https://localhos"),
        (["http://"], "invalid URL 'http://'; expected an http or https URL such as 'https://"),
        (["not a host"], "invalid URL 'not a host'; expected an http or https URL such as 'https://"),
        (["http://127.0.0.1:1/", "--max-delay", "nan"], "must be a number of seconds of at least 0, got 'nan'"),
        (["http://127.0.0.1:1/", "--max-delay", "-1"], "must be a number of seconds of at least 0, got '-1'"),
        (["http://127.0.0.1:1/", "--retry", "-1"], "must be a whole number of at least 0, got '-1'"),
        (["http://127.0.0.1:1/", "--identity", "Example,Bot"], "must be a brand name, other names if any"),
        (["http://127.0.0.1:1/", "-H", "no field"], "invalid header field 'no field'"),
        (["http://127.0.0.1:1/", "-o", "/no/such/folder/out"], "the directory /no/such/folder does not exist"),
        (["http://127.0.0.1:1/", "--ca", "/no/such/file"], "--ca: '/no/such/file' cannot"),
    ],
)
def test_wrong_use_is_exit_2(run, arguments, said):
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, b"")
    assert said in ran.err


def test_a_refused_connection_is_one_sentence(run):
    ran = run("http://127.0.0.1:1/")
    assert (ran.code, ran.out) == (1, b"")
    assert ran.err == "headgate: http://127.0.0.1:1/: Connection refused\n"
    told = run("http://127.0.0.1:1/", "--json")
    assert (told.code, told.json["status"], told.json["held"]) == (1, None, None)
    assert told.json["error"] == "http://127.0.0.1:1/: Connection refused"


def test_a_truncated_body_leaves_no_file(run, site, tmp_path):
    site.answer("/", (200, {"Content-Length": "100"}, b"half"))
    ran = run(site.url, "-o", tmp_path / "body")
    assert ran.code == 1
    assert list(tmp_path.iterdir()) == []


def test_binary_content_is_not_printed_on_a_terminal(run, site, monkeypatch, tmp_path):
    site.answer("/", (200, {}, b"\0\1\2"))
    monkeypatch.setattr(io.BufferedIOBase, "isatty", lambda self: True, raising=False)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True, raising=False)
    ran = run(site.url)
    assert (ran.code, ran.out) == (1, b"")
    assert "is binary and standard output is a terminal" in ran.err
    assert run(site.url, "-o", "-").out == b"\0\1\2"


def test_content_codings_are_not_asked_for(run, site):
    site.answer("/", (200, {"Content-Encoding": "unknown"}, b"as it is"))
    assert run(site.url).out == b"as it is"
    assert site.asked[0][1]["accept-encoding"] == "identity"


def test_cookies_are_kept_for_the_redirects_of_one_run(run, site):
    site.answer("/", (302, {"Location": "/next", "Set-Cookie": "session=1"}, b""))
    site.answer("/next", (200, {}, b""))
    assert run(site.url).code == 0
    assert "cookie" not in site.asked[0][1]
    assert site.asked[1][1]["cookie"] == "session=1"


def test_credentials_are_not_sent_to_another_origin(run, site):
    with serving() as other:
        other.answer("/there", (200, {}, b""))
        site.answer("/", (302, {"Location": "/next"}, b""))
        site.answer("/next", (302, {"Location": other.url + "/there"}, b""))
        assert run(site.url, "-H", "Authorization: Bearer x", "-H", "Cookie: a=1", "-H", "X-One: 1").code == 0
        assert [fields.get("authorization") for _, fields in site.asked] == ["Bearer x", "Bearer x"]
        ((_, fields),) = other.asked
        assert (fields.get("authorization"), fields.get("cookie"), fields.get("x-one")) == (None, None, "1")
    site.answer("/", (200, {}, b""))
    assert run(site.url.replace("//", "//user:p%40ss@")).code == 0
    assert site.asked[-1][1]["authorization"] == "Basic dXNlcjpwQHNz"


def test_redirects_that_are_not_followed_are_errors(run, site):
    site.answer("/", (302, {"Location": "ftp://example.com/"}, b""))
    assert "redirected to 'ftp://example.com/', which is not followed" in run(site.url).err
    site.answer("/", (302, {}, b"no location\n"))
    assert run(site.url) == (0, b"no location\n", "")
    site.answer("/", (302, {"Location": "data:,x"}, b""))
    assert "redirected to 'data:,x', which is not followed: expected an http or https URL" in run(site.url).err


def test_redirects_from_https_to_http_are_errors():
    def redirected(url, location):
        return _SafeRedirects().redirect_request(Request(url), None, 302, "Found", {}, location)

    with pytest.raises(
        FetchError, match=r"^https://a.example/: redirected to 'http://a.example/', which is not followed"
    ):
        redirected("https://a.example/", "http://a.example/")
    assert redirected("http://a.example/", "https://a.example/").full_url == "https://a.example/"


NOT_LOADED = {
    "aiohttp", "anyio", "asyncio", "cryptography", "h11", "h2", "httpcore", "httpcore2", "httpx", "httpx2", "jinja2",
    "prometheus_client", "requests", "rich", "sqlite3", "starlette", "trio", "uvicorn", "yaml", "zmq",
    "headgate.agent.bundle", "headgate.config", "headgate.origin", "headgate.proxy", "headgate.runtime",
}  # fmt: skip
"""Modules that make the program start slowly, and that a fetch without advice does not use."""


@pytest.mark.parametrize("arguments", [["--help"], [], ["--identity", "ExampleBot", "--json"]])
def test_get_loads_no_more_than_it_uses(site, arguments):
    site.answer("/", (200, {}, b"hello\n"))
    command = [sys.executable, "-X", "importtime", "-m", "headgate", "get", site.url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"click", "headgate.cli.program"} <= loaded
    assert loaded & NOT_LOADED == set()
    assert len(loaded) < 400
