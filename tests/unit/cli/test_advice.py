"""`headgate advice`; `fetch` and `check ORIGIN` against an origin on loopback that answers as the vectors say."""

import json
import re
import socket
import threading
import time
from base64 import b64decode
from contextlib import contextmanager, suppress
from email.utils import formatdate
from functools import partial
from pathlib import Path

import pytest

PARSE_CASES = json.loads((Path(__file__).parents[2] / "vectors" / "advice" / "parse.json").read_text())["cases"]
FETCH_CASES = json.loads((Path(__file__).parents[2] / "vectors" / "advice" / "fetch.json").read_text())["cases"]
IDENTITY = "ExampleProxy,prefetch-proxy,*"
TYPE = [["Content-Type", "application/trafficadvice+json"]]
HALF = b'[{"user_agent":"*","fraction":0.5}]'
FLAGS = {
    "parse": ["--identity"],
    "fetch": ["--identity", "--ca", "--json"],
    "check": ["--content-type", "--ca", "--json"],
}


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
        (
            ["fetch", "https://localhost", "--identity", "A,*", "--ca", "/nowhere/at.all"],
            "--ca /nowhere/at.all: No such",
        ),
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


def test_parse_prints_the_result_of_each_vector_on_one_line(run):
    for case in PARSE_CASES:
        body = b"".join(b64decode(part) * times for part, times in case["body"])
        told = run("parse", "-", "--identity", ",".join(case["identity"]), stdin=body)
        assert (told.code, bool(told.err), told.json) == (0, not case["expected"], case["expected"]), case["name"]
        assert told.out.count(b"\n") == 1, case["name"]
        assert b"-0" not in told.out, case["name"]


def test_a_file_and_standard_input_are_read_alike(run, tmp_path):
    file = tmp_path / "advice.json"
    file.write_bytes(b'[{"user_agent":"Ex\xc3\xa4mple","fraction":0.25}]')
    assert run("parse", file, "--identity", " Exämple , *").json == {"disallowed": False, "fraction": 0.25}
    assert run("parse", "--identity", "Exämple,*", stdin=file.read_bytes()).json["fraction"] == 0.25
    told = run("parse", file, "--identity", "Other,*")
    assert told.out == b"null\n"
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


class Origin:
    """Answers every connection with the same bytes, and remembers what it heard."""

    def __init__(self):
        self.said = b""
        self.heard = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            connection, _ = self._listening.accept()
            with connection, suppress(ConnectionError):
                heard = b""
                while b"\r\n\r\n" not in heard:
                    chunk = connection.recv(65536)
                    if not chunk:
                        return
                    heard += chunk
                self.heard.append(heard.decode())
                connection.sendall(self.said)

    def answer(self, body, *, status=200, headers=TYPE, length=None):
        head = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers)]
        head.append(f"Content-Length: {len(body) if length is None else length}")
        self.said = "\r\n".join([*head, "", ""]).encode("latin-1") + body

    def close(self):
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listening.close()


@contextmanager
def listening():
    origin = Origin()
    try:
        yield origin
    finally:
        origin.close()


@pytest.fixture
def origin():
    with listening() as origin:
        yield origin


def test_fetch_vectors(run, origin):
    for case in FETCH_CASES:
        origin.heard.clear()
        try:
            check_fetch(run, origin, case)
        except AssertionError as error:
            raise AssertionError(case["name"]) from error


def check_fetch(run, origin, case):
    with listening() as trap:

        def filled(value):
            value = value.replace("@TRAP@", f"{trap.url}/")
            return re.sub(r"@DATE([+-]\d+)@", lambda match: formatdate(time.time() + int(match[1]), usegmt=True), value)

        headers = [(name, filled(value)) for name, value in case["headers"]]
        body = b64decode(case["body"])
        length = len(body) + 10 if case.get("how") == "cut" else None
        origin.answer(body, status=case["status"], headers=headers, length=length)
        told = run("fetch", origin.url, "--identity", IDENTITY, "--json")
        assert trap.heard == []
    assert told.json["result"] == case["expected"]
    assert told.code == (0 if isinstance(case["expected"], dict) else 1)
    assert told.json["origin"] == origin.url
    assert told.json["url"] == f"{origin.url}/.well-known/traffic-advice"
    assert told.json["reason"]
    assert list(told.json) == ["origin", "url", "result", "fresh_for", "reason"]
    for right in case.get("fresh_for", [told.json["fresh_for"]]):
        assert right - 5 <= told.json["fresh_for"] <= right
    (request,) = origin.heard
    assert request.startswith("GET /.well-known/traffic-advice HTTP/1.1\r\n")
    assert not re.search(r"(?mi)^(cookie|authorization|referer):", request)


def test_only_the_origin_of_a_url_is_used(run, origin):
    origin.answer(HALF)
    for url in (f"http://user:password@127.1:{origin.port}/a/b?c=d#e", f"HTTP://0x7F.1:{origin.port}"):
        told = run("fetch", url, "--identity", IDENTITY, "--json")
        assert (told.code, told.json["origin"]) == (0, origin.url)
    assert "authorization" not in "".join(origin.heard).lower()
    assert "password" not in "".join(origin.heard)


@pytest.mark.parametrize("url", ["ws://127.0.0.1:{}", "ftp://127.0.0.1:{}", "file://127.0.0.1:{}/", "a b"])
def test_advice_is_fetched_from_https_origins_and_this_machine_only(run, origin, url):
    told = run("fetch", url.format(origin.port), "--identity", IDENTITY, "--json")
    assert told.code == 1
    assert (told.json["url"], told.json["result"], told.json["fresh_for"]) == (None, None, None)
    assert url != "a b" or told.json["reason"] == "invalid URL; expected a form such as https://example.com"
    assert origin.heard == []
    assert run("fetch", "http://10.0.0.1", "--identity", IDENTITY).out.count(b"\n") == 1


def test_an_unreachable_origin_is_reported_with_its_retry_after(run, origin):
    origin.answer(b"", status=503, headers=[["Retry-After", "120"]])
    told = run("fetch", origin.url, "--identity", IDENTITY, "--json")
    assert (told.code, told.json["result"], told.json["fresh_for"]) == (1, "unreachable", 120)
    said = run("fetch", origin.url, "--identity", IDENTITY)
    assert said.out.decode() == f"{origin.url}: status 503: the server is unavailable; ask again in 120 s\n"


def test_check_of_an_origin_includes_its_response_fields(run, origin):
    origin.answer(HALF, headers=[*TYPE, ["Cache-Control", "max-age=63072000"]])
    told = run("check", origin.url, "--json")
    assert told.code == 1
    assert told.json["conforming"] == {"disallowed": False, "fraction": 0.5}
    assert [finding["code"] for finding in told.json["findings"]] == ["fresh_too_long", "nosniff"]
    (request,) = origin.heard
    assert "User-Agent: Chrome Privacy Preserving Prefetch Proxy\r\n" in request


def test_check_explains_that_403_is_not_an_opt_out(run, origin):
    origin.answer(b"no", status=403, headers=[])
    told = run("check", origin.url, "--json")
    assert (told.code, told.json["conforming"]) == (1, None)
    assert [finding["code"] for finding in told.json["findings"]] == ["no_opt_out"]


def test_check_reads_a_document_with_the_wrong_media_type(run, origin):
    origin.answer(b"{}", headers=[["Content-Type", "application/json"], ["X-Content-Type-Options", "nosniff"]])
    told = run("check", origin.url, "--json")
    assert [finding["code"] for finding in told.json["findings"]] == ["media_type", "not_a_list"]


def test_the_default_identity_is_every_agent(run, origin):
    origin.answer(b'[{"user_agent":"ExampleBot","disallow":true},{"user_agent":"*","fraction":0.5}]')
    assert run("fetch", origin.url, "--json").json["result"] == {"disallowed": False, "fraction": 0.5}
    assert run("fetch", origin.url, "--identity", "*", "--json").json["result"]["fraction"] == 0.5
    assert run("fetch", origin.url, "--identity", "ExampleBot", "--json").json["result"]["disallowed"]
    told = run("fetch", origin.url, "--identity", "Other, ExampleBot, *", "--json")
    assert told.json["result"]["disallowed"]
    assert ["User-Agent: headgate\r\n" in heard for heard in origin.heard] == [True, True, False, False]


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
