"""`headgate get`: fetch one URL politely with the standard library's client, and explain each wait.

That client starts in a fifth of the time of others. It is imported when the command runs, so that `--help` is fast.
"""

import math
import sys
from contextlib import nullcontext
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import click

from headgate.advice.parser import result_to_json
from headgate.cli.bundle.output import output_target
from headgate.cli.output import exit_with_failure, print_json, printable
from headgate.cli.params import CA, COUNT, SECONDS, header_option, identity_option, tls_context
from headgate.errors import ConfigurationError, FetchError, HeadgateError, RetryLater

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity
    from headgate.agent import Event

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
    except (RetryLater, FetchError) as error:
        if not is_json:
            raise
        journal.failed(error)
    record = journal.record
    is_bad = record["error"] is not None or record["status"] >= 400
    if is_json:
        print_json(record)
    elif is_bad:
        phrase = HTTPStatus(record["status"]).phrase if record["status"] in set(HTTPStatus) else ""
        click.echo(f"headgate: {printable(record['url'])}: {record['status']} {phrase}".rstrip(), err=True)
    if is_bad:
        exit_with_failure()


def _web_url(url: str) -> str:
    from headgate.http.url import parse_url

    parsed = parse_url(url)
    if parsed is None or not parsed.startswith(("http://", "https://")):
        meant = f"https://{url}" if "://" not in url and parse_url(f"https://{url}") else "https://example.com/"
        raise ConfigurationError(
            f"invalid URL {printable(url)!r}; expected an http or https URL such as {printable(meant)!r}"
        )
    return parsed


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
    from headgate.cli.polite_opener import open_politely
    from headgate.fetch.pace import USER_AGENT

    tls = tls_context(ca)
    agent = USER_AGENT if identity is None else f"{identity.brand} {USER_AGENT}"
    with (
        Courtesy(identity, wait=max_delay, retry=retry, tls=tls, on_event=journal.record_event) as courtesy,
        open_politely(courtesy, url, _request_fields(agent, fields), tls=tls) as response,
    ):
        journal.record |= {"url": response.url, "status": response.status, "headers": response.headers.items()}
        _write_body(response, out, journal.record, is_json=is_json)


def _request_fields(agent: str, fields: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the fields of the request; the values of a repeated name are joined (RFC 9110, 5.3)."""
    given: dict[str, list[str]] = {}
    for name, value in fields:
        given.setdefault(name.lower(), []).append(value)
    combined = {"user-agent": agent.encode("utf-8", "replace").decode("latin-1"), "accept": "*/*"}
    return combined | {name: ("; " if name == "cookie" else ", ").join(values) for name, values in given.items()}


def _write_body(response: Any, out: str, record: dict[str, Any], *, is_json: bool) -> None:
    """Write the body as it arrives; with --json, only to a file."""
    from headgate.bundle.files.atomic_file import open_output

    with open_output(output_target(out or "-"), 0) if out or not is_json else nullcontext() as output:
        while chunk := response.read1(65_536):
            if not out and not record["length"] and sys.stdout.isatty() and 0 in chunk:
                raise HeadgateError(
                    f"{printable(record['url'])} is binary and standard output is a terminal;"
                    " use -o FILE, or -o - to print it"
                )
            record["length"] += len(chunk)
            if output is not None:
                output.put(chunk)
                output.flush()
        if response.length:  # `read1` does not report missing bytes
            raise FetchError(f"{response.url}: the body ended {response.length} bytes before its Content-Length")


class _Journal:
    """Records requests, responses and waits for `--json`, and prints each one on stderr with `--explain`."""

    def __init__(self, *, explain: bool) -> None:
        self._explain = explain
        self._latest = 0.0
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

    def record_event(self, event: "Event") -> None:
        """Record and print a request, its response, or the advice of an origin."""
        from headgate.http.fields import lines_of
        from headgate.throttle.fields import text_pairs

        attempts = self.record["attempts"]
        if event.kind == "sent":
            waited = event.now - self._latest
            # The time before the first request is the start of the program, not a wait.
            if waited > _MIN_REPORTED_WAIT and attempts:
                self._print(f"waited {waited:.1f} s")
            sent = {"method": event.method, "url": event.url, "sent": event.now, "status": None, "retry_after": None}
            attempts.append(sent)
        elif event.kind in {"answered", "lost"}:
            retry_after = next(iter(lines_of(text_pairs(event.headers), "retry-after")), None)
            attempts[-1] |= {"status": event.status or None, "retry_after": retry_after}
            self._print(f"{event}" if retry_after is None else f"{event}, Retry-After: {retry_after}")
        elif event.advice is not None:
            known = {"result": result_to_json(event.advice.result), "reason": event.reason}
            self.record["advice"][event.url] = {**known, "fresh_for": event.release_time - event.now}
            self._print(f"{event}; ask again in {event.release_time - event.now:.0f} s")
        self._latest = event.now

    def failed(self, error: HeadgateError) -> None:
        """Record why the response is missing or incomplete."""
        self.record["error"] = str(error)
        if isinstance(error, RetryLater):
            release = error.release_time if math.isfinite(error.release_time) else None
            self.record["held"] = {"release_time": release, "reason": error.reason, "target": error.target}

    def _print(self, sentence: str) -> None:
        if self._explain:
            click.echo(printable(sentence), err=True)
