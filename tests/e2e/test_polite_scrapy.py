"""A spider of Scrapy with the middleware in it, against a real server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import polite_laws
from tests.e2e.polite_origin import ADVICE, Answer
from tests.servers import free_port

origin = polite_laws.origin
ROOT = Path(__file__).parents[2]
PAGES = 10


def crawled(first: str, wait: float) -> dict[str, object]:
    """Run the spider; return what came of each page."""
    command = [sys.executable, "-m", "tests.e2e.polite_spider", str(PAGES), first, str(wait)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return {url.removeprefix(first): result for url, result in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("status", [503, 429])
def test_no_page_is_lost_and_nothing_is_sent_while_the_origin_is_held(origin, status):
    origin.say("/0", Answer(status, {"Retry-After": "2"}), 200)
    assert crawled(f"{origin.url}/", 60) == {str(number): 200 for number in range(PAGES)}
    asked = origin.got()
    assert len(asked) == PAGES + 1  # Scrapy's own middleware has retried the first
    assert {request.fields["User-Agent"] for request in asked} == {"ExampleBot/1.0"}
    assert [request.path for request in origin.asked].index(ADVICE) == len(origin.got(ADVICE)) - 1 == 0
    first = min(request.at for request in asked if request.path == "/0")
    early = [request.path for request in asked if request.at < first + 1]
    assert len(early) < PAGES / 2  # those that were in flight


def test_a_page_that_is_held_for_too_long_gets_an_error(origin):
    origin.say("/0", Answer(200, {"Retry-After": "600"}))
    origin.advise('[{"user_agent":"ExampleBot","disallow":true}]')
    assert crawled(f"{origin.url}/", 0.5) == {str(number): "Held" for number in range(PAGES)}
    assert origin.got() == []


def test_an_origin_without_connections_is_held():
    port = free_port()
    assert "Held" in crawled(f"http://127.0.0.1:{port}/", 0).values()
