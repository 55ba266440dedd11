"""The forms of the gate's own responses."""

import json

import pytest

from headgate.limit import Accounting, Domain
from headgate.origin import Rejections, pages
from headgate.origin.pages import Pages, fill_template, preferred_form
from headgate.origin.response import Refusals, problem
from headgate.release import NEVER, Status

BROWSER = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PAGE = "<b>{status}</b> {title}: {reason} {retry_after} {request_id} {other} b { color: red }"


@pytest.mark.parametrize(
    ("accept", "default", "form"),
    [
        (BROWSER, "text", "html"),
        (BROWSER, "problem", "html"),
        (b"text/html;q=0.5, application/json", "text", "problem"),
        (b"text/html, application/json", "text", "problem"),
        (b"text/html;q=0.4, text/plain", "problem", "text"),
        (b"text/html;q=0", "text", "text"),
        (b"text/*", "problem", "text"),
        (b"application/json, text/plain, */*", "text", "text"),
        (b"text/plain;q=0.5, application/problem+json;q=0.4", "text", "text"),
        (b"*/*", "problem", "problem"),
        (None, "problem", "problem"),
    ],
)
def test_accept_chooses_the_form(accept, default, form):
    assert preferred_form(accept, default, has_page=True) == form
    assert preferred_form(accept, default) == (default if form == "html" else form)


def test_only_short_values_of_accept_are_remembered(monkeypatch):
    asked = []
    monkeypatch.setattr(pages, "quality", lambda accept, media_type: asked.append(len(accept)) or 1.0)
    for accept in (None, b"*/*", b"application/json;q=0.77", b"application/json" + b" " * 300):
        for _ in range(2):
            assert preferred_form(accept) == "text"
    assert asked == [23] * 2 + [316] * 4


def test_a_template_is_filled_with_escaped_values():
    filled = fill_template(PAGE, status="503", title="<script>", reason='"&{status}')
    assert filled == ("<b>503</b> &lt;script&gt;: &quot;&amp;{status}  {request_id} {other} b { color: red }")


@pytest.mark.parametrize(
    ("accept", "kind", "body"),
    [
        (BROWSER, b"text/html; charset=utf-8", ". Try again in 6 seconds. 6 {request_id} "),
        (b"*/*", b"text/plain; charset=utf-8", "\nRequest ID: {request_id}\n"),
        (b"application/json", b"application/problem+json", '"instance":"{request_id}"'),
    ],
)
def test_with_a_page_each_form_names_the_request(accept, kind, body):
    rejected = Accounting("api", Status.REJECTED, b"a", 0.0, 6.0)
    for response in (
        Rejections([Domain("api")], page=PAGE)(rejected, now=0.0, accept=accept),
        Refusals(page=PAGE)(6, accept=accept),
    ):
        assert response.names_request
        assert dict(response.fields)[b"content-type"] == kind
        assert body in response.body.decode()


@pytest.mark.parametrize(
    ("release", "text"),
    [(1, "in 1 second."), (119, "in 119 seconds."), (121, "in 3 minutes."), (NEVER, "later.  {request_id}")],
)
def test_a_page_says_when_to_try_again(release, text):
    rejected = Accounting("api", Status.REJECTED, b"a", 0.0, release)
    assert text in Rejections(page=PAGE)(rejected, now=0.0, accept=BROWSER).body.decode()


def test_the_default_page_is_complete():
    text = problem(502, "Bad Gateway", "No answer.", BROWSER, page=Pages().error).body.decode()
    assert text.count("Bad Gateway") == 2
    assert "<p>No answer.</p>" in text
    assert "Request ID {request_id}" in text
    assert json.loads(problem(502, "Bad Gateway", "No.", b"application/json").body).get("instance") is None
