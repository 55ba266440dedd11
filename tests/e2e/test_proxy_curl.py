"""Common programs and libraries fetch through `headgate proxy` and check every certificate."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.programs import PATIENCE
from tests.e2e.proxy_setup import Proxy, proxy
from tests.servers import is_present

HOST, PAGE = "www.example.org", "a page that is fetched\n"
BOTH = pytest.mark.parametrize("running", [True, False], ids=["tls", "plaintext"], indirect=True)
TLS = pytest.mark.parametrize("running", [True], ids=["tls"], indirect=True)


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxy]:
    with proxy(tmp_path, tls=request.param) as one:
        one.origin.answer(HOST, body=PAGE, content_type="text/plain")
        yield one


def was_fetched(running: Proxy) -> bool:
    """Return whether advice and then the page was requested, through a tunnel that has ended."""
    advice, page = running.origin.asked
    assert advice.startswith("GET /.well-known/traffic-advice HTTP/1.1\r\n")
    assert page.startswith("GET /page HTTP/1.1\r\n")
    running.wait_for(tunnels=0)
    return True


# curl.


class Curl:
    """What curl did: its exit code, what it wrote, and the statuses of the CONNECT and of the response."""

    def __init__(self, running: Proxy, *words: str, ca: str = "ca.pem") -> None:
        folder = running.program.log.parent
        address = running.program.ready["address"].replace("127.0.0.1", "localhost")
        command = ["curl", "--disable", "--silent", "--show-error", "--write-out", "\n%{http_connect} %{http_code}"]
        command += ["--proxy", address, "--proxy-cacert", folder / ca, "--cacert", folder / "ca.pem", *words]
        command += [f"https://{HOST}:{running.origin.port}/page"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env={})
        self.code, self.errors = done.returncode, done.stderr
        self.content, _, statuses = done.stdout.rpartition("\n")
        self.connect, self.status = map(int, statuses.split())


def curl_knows(flag: str) -> bool:
    """Return whether the installed curl has a flag."""
    if not is_present("curl"):
        return False
    told = subprocess.run(["curl", "--help", "all"], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return flag in told.stdout


@BOTH
@pytest.mark.needs("curl")
def test_curl_fetches_a_page(running: Proxy) -> None:
    curl = Curl(running)
    assert (curl.code, curl.connect, curl.status, curl.content) == (0, 200, 200, PAGE), curl.errors
    assert was_fetched(running)


@TLS
@pytest.mark.skipif(not curl_knows("--proxy-http2"), reason="this curl speaks no HTTP/2 with proxies; 8.1 does")
def test_curl_fetches_a_page_in_http_2(running: Proxy) -> None:
    curl = Curl(running, "--proxy-http2", "--verbose")
    assert (curl.code, curl.connect, curl.status, curl.content) == (0, 200, 200, PAGE), curl.errors
    assert re.search(r"CONNECT tunnel: HTTP/2 negotiated|h2", curl.errors)
    assert was_fetched(running)


@BOTH
@pytest.mark.needs("curl")
def test_curl_shows_the_reason_of_a_refusal(running: Proxy) -> None:
    running.origin.advise(HOST, {"user_agent": "*", "disallow": True})
    curl = Curl(running, "--include")
    assert (curl.code, curl.connect, curl.status) == (56, 403, 0), "the tunnel was not opened"
    assert 'proxy-status: headgate; error=http_request_denied; details="advice_disallowed"' in curl.content
    assert "retry-after: 0" in curl.content
    assert len(running.origin.asked) == 1
