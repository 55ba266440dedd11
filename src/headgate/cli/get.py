"""`headgate get`: fetch one URL politely, and explain each wait."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.output import output_target
from headgate.cli.output import exit_with_failure, print_json, printable
from headgate.cli.params import CA, COUNT, SECONDS, header_option, identity_option, tls_context
from headgate.errors import ConfigurationError, FetchError, HeadgateError, NoContact

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity
    from headgate.agent import Courtesy
    from headgate.cli.polite_fetch import FetchedResponse


_MIN_REPORTED_WAIT = 0.05
"""Seconds of waiting that are worth reporting."""


@click.command(short_help="One polite fetch.")
@click.argument("url", metavar="URL")
@header_option("Request header; repeatable.")
@identity_option(default=None)
@CA
@click.option(
    "--max-delay",
    type=SECONDS,
    metavar="SECONDS",
    help="Maximum wait in seconds for advice and holds.  [default: 6 for advice, 0 for holds; 5 for both with --retry]",
)
@click.option("--retry", type=COUNT, metavar="N", default=0, show_default=True, help="Maximum number of retries.")
@click.option(
    "-o", "--output", "out", metavar="FILE", default="", help="Output file for the body.  [default: standard output]"
)
@click.option("--explain", is_flag=True, help="Print each request, response and wait on stderr, with the reason.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object; the body is written only to --output.")
def get(*, url: str, out: str, explain: bool, is_json: bool, **options: Any) -> None:
    """Fetch URL as a polite agent does, and print the body.

    With --identity the origin's traffic advice is fetched first, and obeyed. With --retry a request that is answered
    with 429, 500, 503 or 509 is sent again: after a pause of 0.5 to 1 second (1 to 2 after 429) that doubles for each
    further retry, and not before the time in Retry-After. A retry that would wait longer than --max-delay is not sent.
    Each redirect is followed by the same rules. Nothing is remembered between runs.

    The exit code is 0 for a status below 400, and 1 for any other status, or if no request may be sent.

    \b
    headgate get https://example.com/ --identity ExampleBot --explain
    headgate get https://example.com/feed.json -o feed.json --retry 3 --max-delay 60
    headgate get https://example.com/ --json | jq .status
    """
    output_target(out or "-")
    journal = _Journal(explain=explain)
    try:
        _fetch(_web_url(url), out, journal, is_json=is_json, **options)
    except (NoContact, FetchError) as error:
        if not is_json:
            raise
        journal.failed(error)
    if is_json:
        print_json(journal.record)
    elif journal.is_bad:
        click.echo(f"headgate: {printable(journal.summary)}", err=True)
    if journal.is_bad:
        exit_with_failure()


def _web_url(url: str) -> str:
    from headgate.http.url import parse_url

    parsed = parse_url(url)
    if parsed is None or not parsed.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"invalid URL {printable(url)!r}; expected an http or https URL such as {_with_scheme(url)!r}"
        )
    return parsed


def _with_scheme(text: str) -> str:
    """Return the URL that the user probably means by a host and a path; for other texts, an example."""
    from headgate.http.url import host_of, is_localhost, serialised_origin

    url = f"https://{text}"
    origin = serialised_origin(url)
    if origin is None or "://" in text:
        return "https://example.com/"
    return printable(f"http://{text}" if is_localhost(host_of(origin)) else url)


def _fetch(
    url: str,
    out: str,
    journal: "_Journal",
    *,
    is_json: bool,
    fields: tuple[tuple[str, str], ...],
    identity: "AgentIdentity | None",
    ca: str | None,
    max_delay: float | None,
    retry: int,
) -> None:
    from headgate.agent import Courtesy
    from headgate.cli.polite_fetch import PoliteFetch
    from headgate.fetch.pace import USER_AGENT

    tls = tls_context(ca)
    agent = USER_AGENT if identity is None else f"{identity.brand} {USER_AGENT}"
    with Courtesy(identity, max_delay=max_delay, retry=retry, tls=tls) as courtesy:
        fetch = PoliteFetch(courtesy, tls=tls, observe=partial(journal.attempt, courtesy))
        try:
            with fetch.get(url, _request_fields(agent, fields)) as reply:
                journal.answered(reply)
                _write_body(reply, out, journal, is_json=is_json)
        finally:
            journal.learned(courtesy, url)


def _request_fields(agent: str, fields: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the fields of the request; the values of a repeated name are joined (RFC 9110, 5.3)."""
    combined = {"user-agent": agent.encode("utf-8", "replace").decode("latin-1"), "accept": "*/*"}
    combined["accept-encoding"] = "gzip, deflate"
    given: dict[str, list[str]] = {}
    for name, value in fields:
        given.setdefault(name.lower(), []).append(value)
    return combined | {name: ("; " if name == "cookie" else ", ").join(values) for name, values in given.items()}


def _write_body(reply: "FetchedResponse", out: str, journal: "_Journal", *, is_json: bool) -> None:
    """Write the body as it arrives; with --json, only to a file."""
    from headgate.bundle.files.atomic_file import open_output

    is_written = not is_json or bool(out)
    with open_output(output_target(out or "-"), 0) if is_written else nullcontext() as output:
        for chunk in reply.chunks():
            if not out and not journal.record["length"] and sys.stdout.isatty() and 0 in chunk:
                url = printable(journal.record["url"])
                raise HeadgateError(
                    f"{url} is binary and standard output is a terminal; use -o FILE, or -o - to print it"
                )
            journal.record["length"] += len(chunk)
            if output is not None:
                output.put(chunk)
                output.flush()


class _Journal:
    """Records requests, responses and waits for `--json`, and prints each one on stderr with `--explain`."""

    def __init__(self, *, explain: bool) -> None:
        self._explain = explain
        self._latest = time.monotonic()
        self.record: dict[str, Any] = {
            "url": None,
            "status": None,
            "headers": [],
            "length": 0,
            "attempts": [],
            "advice": {},
            "held": None,
            "error": None,
        }
        """What --json prints."""

    @property
    def is_bad(self) -> bool:
        """Whether the exit code is 1."""
        return self.record["status"] is None or self.record["status"] >= 400 or self.record["error"] is not None

    @property
    def summary(self) -> str:
        """The last response in one line."""
        status = self.record["status"]
        phrase = f" {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else ""
        return f"{self.record['url']}: {status}{phrase}"

    @contextmanager
    def attempt(self, courtesy: "Courtesy", method: str, url: str) -> Iterator[dict[str, Any]]:
        """Record and print one request; the block adds its response."""
        self.learned(courtesy, url)
        waited = time.monotonic() - self._latest
        # The time before the first request is the start of the program, not a wait.
        if waited > _MIN_REPORTED_WAIT and self.record["attempts"]:
            self._print(f"waited {waited:.1f} s")
        attempt = {"method": method, "url": url, "sent": time.time(), "status": None, "retry_after": None}
        self.record["attempts"].append(attempt)
        try:
            yield attempt
        finally:
            self._latest = time.monotonic()
            retry_after = f", Retry-After: {attempt['retry_after']}" if attempt["retry_after"] is not None else ""
            self._print(f"{method} {url}: {attempt['status'] or 'no response'}{retry_after}")

    def learned(self, courtesy: "Courtesy", url: str) -> None:
        """Record and print the advice of a URL's origin when it is first known; print a hold of the throttle."""
        from headgate.advice.parser import result_to_json
        from headgate.http.url import serialised_origin

        origin = serialised_origin(url) or url
        advice = courtesy.known_advice(url)
        if advice is not None and origin not in self.record["advice"]:
            fresh_for = advice.fresh_until - time.time()
            seconds = fresh_for if math.isfinite(fresh_for) else None
            known = {"result": result_to_json(advice.result), "reason": advice.reason, "fresh_for": seconds}
            self.record["advice"][origin] = known
            self._print(f"{origin}: {advice.reason}" + ("" if seconds is None else f"; ask again in {seconds:.0f} s"))
            self._latest = time.monotonic()
        throttled = courtesy.explain(url)
        if throttled.held:
            self._print(str(throttled))

    def answered(self, reply: "FetchedResponse") -> None:
        """Record the final response."""
        self.record |= {"url": reply.url, "status": reply.status, "headers": reply.fields}

    def failed(self, error: HeadgateError) -> None:
        """Record why the response is missing or incomplete."""
        self.record["error"] = str(error)
        if isinstance(error, NoContact):
            release = error.release_time if math.isfinite(error.release_time) else None
            self.record["held"] = {"release_time": release, "reason": error.reason, "target": error.target}

    def _print(self, sentence: str) -> None:
        if self._explain:
            click.echo(printable(sentence), err=True)
