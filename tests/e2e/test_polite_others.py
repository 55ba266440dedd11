"""The programs of the how-to that use libraries without a transport of ours: what they observe holds their requests."""

import time
from types import SimpleNamespace

import pytest

from headgate import agent
from tests.e2e import polite_laws
from tests.e2e.polite_origin import Answer
from tests.e2e.test_docs import ROOT, blocks
from tests.servers import free_port

origin = polite_laws.origin
SITE = "http://127.0.0.1:8080"
URL = "https://example.com/page"


def block(beginning: str) -> str:
    """Return the program of the how-to that begins with this."""
    page = blocks(ROOT / "docs/how-to/be-polite-with-other-libraries.md")
    (found,) = [text for _, text in page if text.startswith(beginning)]
    return found


@pytest.mark.parametrize("library", ["pycurl", "boto3"])
def test_a_program_counts_what_it_is_answered_and_what_is_lost(origin, library, monkeypatch):
    courtesy = polite_laws.courtesy()
    monkeypatch.setattr(agent, "Courtesy", lambda name: courtesy)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # boto3 pauses before it retries
    origin.say("/" if library == "pycurl" else "/pages/first", Answer(200, {"Retry-After": "60"}))
    source = block(f"# polite_{library}.py")
    exec(source.replace(SITE, origin.url), {})
    assert courtesy.explain(f"{origin.url}/").reason == "retry-after"
    dead = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Exception, match=r"(?i)connect"):
        exec(source.replace(SITE, dead), {})
    assert courtesy.explain(dead).failures > 0


def test_a_page_of_playwright_counts_its_responses():
    """With the attributes that Playwright's documentation gives its events."""
    courtesy = polite_laws.courtesy()
    handlers = {}
    page = SimpleNamespace(on=handlers.__setitem__, goto=lambda url: None)
    exec(block('page.on("response"'), {"page": page, "courtesy": courtesy, "url": URL, "time": time})
    handlers["requestfailed"](SimpleNamespace(url=URL))
    assert courtesy.explain(URL).failures == 1
    handlers["response"](SimpleNamespace(url=URL, status=200, headers={"retry-after": "60"}))
    assert courtesy.explain(URL).reason == "retry-after"
