"""The forms of a response that the gate makes itself: text, a problem document, or an HTML page from a template."""

import html
import re
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from headgate.http.media_type import quality

Form = Literal["text", "problem", "html"]

PROBLEM: Final = b"application/problem+json"
_TEXT, _JSON, _HTML = b"text/plain", b"application/json", b"text/html"
_MAX_REMEMBERED: Final = 256
"""Bytes of the longest Accept whose verdict is cached, and the number of verdicts cached."""

REQUEST_ID: Final = b"{request_id}"
"""Stands for the id of the request in a body, until that is sent."""
_PLACEHOLDER: Final = re.compile(r"\{(status|title|reason|retry_after)\}")

_DEFAULT: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>
:root { color-scheme: light dark }
body { font: 1.05rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto 0; padding: 0 1.5rem }
h1 { font-size: 1.6rem; margin: 0 0 .5rem }
footer { margin-top: 2.5rem; font-size: .85rem; opacity: .65; overflow-wrap: anywhere }
</style>
<main>
<h1>{title}</h1>
<p>{reason}</p>
</main>
<footer>Status {status} · Request ID {request_id}</footer>
</html>
"""


MAX_TEMPLATE_SIZE: Final = 262_144
"""Bytes of a template."""


class Pages(Struct, frozen=True):
    """The templates of the HTML pages.

    In a template `{status}`, `{title}`, `{reason}`, `{retry_after}` (seconds; empty if unknown) and `{request_id}` are
    replaced; any other text, braces included, stays.
    """

    rejected: str = _DEFAULT
    """For requests that a rule rejects or the concurrency limit refuses."""
    error: str = _DEFAULT
    """For errors of the gate, such as 400, 413, 502 and 504."""


def fill_template(template: str, **values: str) -> str:
    """Put values into a template, HTML-escaped; `REQUEST_ID` stays in it."""
    return _PLACEHOLDER.sub(lambda match: html.escape(values.get(match[1], "")), template)


def preferred_form(accept: bytes | None, default: Form = "text", *, has_page: bool = False) -> Form:
    """Return the form that `accept` prefers; `default` for a client that prefers none.

    A client that prefers `application/json` to text gets a problem document, unless it names problem documents itself.
    A page is for clients that name `text/html`.
    """
    if accept is None or accept == b"*/*":
        return default
    found = _preferred_form if len(accept) <= _MAX_REMEMBERED else _preferred_form.__wrapped__
    return found(accept, default, has_page)


@lru_cache(_MAX_REMEMBERED)
def _preferred_form(accept: bytes, default: Form, has_page: bool) -> Form:  # noqa: FBT001 - a key of the cache
    named = accept.lower()
    as_problem = quality(accept, PROBLEM if PROBLEM in named else _JSON)
    as_text = quality(accept, _TEXT)
    if has_page and _HTML in named and (as_html := quality(accept, _HTML)) > as_problem and as_html >= as_text:
        return "html"
    if as_problem == as_text:
        return default
    return "problem" if as_problem > as_text else "text"
