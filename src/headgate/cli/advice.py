"""`headgate advice`: parse, fetch and check traffic advice.

What reads or fetches advice is imported when a command runs, so that `--help` is fast.
"""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headgate.cli.output import exit_with_failure, format_count, print_json, printable, report_read_errors, style
from headgate.cli.params import CA, identity_option, tls_context
from headgate.cli.program import CommandGroup
from headgate.errors import ConfigurationError, fail_if

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity
    from headgate.advice.lint import AdviceReport

_MAX_SIZE: Final = 16 << 20
"""Maximum bytes of a document in a file; an agent would fetch less."""
_MAX_LISTED: Final = 20
"""Entries of a document that are named."""
_COLOURS: Final = {"error": "red", "warning": "yellow"}


@click.group(cls=CommandGroup, epilog="Start with: headgate advice fetch https://example.com")
def advice() -> None:
    """Parse, fetch and check traffic advice: how much automated traffic an origin accepts.

    Origins serve it at /.well-known/traffic-advice, as application/trafficadvice+json.
    """


@advice.command(short_help="Print what a document advises an agent.")
@click.argument("file", metavar="[FILE|-]", default="-")
@identity_option()
def parse(*, file: str, identity: "AgentIdentity") -> None:
    """Print the entry of a traffic advice document that applies to the agent with these names, or null if none does.
    Then a line on stderr names the entries.

    As the standard requires, a document that is not valid JSON contains no advice and is not an error.

    \b
    headgate advice parse traffic-advice.json
    headgate advice parse traffic-advice.json --identity 'ExampleProxy,prefetch-proxy,*'
    curl -s https://example.com/.well-known/traffic-advice | headgate advice parse - --identity ExampleBot
    """
    from headgate.advice.parser import parse_advice_bytes, result_to_json

    document = _read_document(file)
    entry = parse_advice_bytes(document, identity)
    print_json(result_to_json(entry))
    if entry is None:
        click.echo(f"no entry applies to --identity {','.join(identity)!r}; {_entries_of(document)}", err=True)


def _entries_of(document: bytes) -> str:
    """Describe which entries a document has."""
    from headgate.advice.parser import decode_utf8, parse_json

    names: list[str] = []
    with suppress(ValueError, TypeError):  # not JSON, or a number
        names += [
            str(entry.get("user_agent")) for entry in parse_json(decode_utf8(document)) if isinstance(entry, dict)
        ]
    return f"the document has entries for {printable(', '.join(names[:_MAX_LISTED]))}" if names else "it has no entries"


@advice.command(short_help="Print what an origin advises an agent, and for how long.")
@click.argument("origin")
@identity_option()
@CA
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def fetch(*, origin: str, identity: "AgentIdentity", ca: str | None, is_json: bool) -> None:
    """Fetch an origin's traffic advice with one request, and print the entry for the agent with these names.

    ORIGIN is a URL; its path is ignored, and the default scheme is https. Advice is fetched only from https origins and
    from this machine. The exit code is 0 if there is advice for the agent, and 1 if not.

    \b
    headgate advice fetch https://example.com
    headgate advice fetch https://example.com --identity ExampleBot
    headgate advice fetch https://example.com --identity ExampleBot --json | jq .result.fraction
    """
    found = _fetch(origin if "://" in origin else f"https://{origin}", identity, tls_context(ca))
    if is_json:
        print_json(found)
    else:
        fresh = "" if found["fresh_for"] is None else f"; ask again in {found['fresh_for']:.0f} s"
        click.echo(f"{printable(found['origin'] or repr(origin))}: {printable(found['reason'])}{fresh}")
    if not isinstance(found["result"], dict):
        exit_with_failure()


def _fetch(origin: str, identity: "AgentIdentity", tls: Any) -> dict[str, Any]:
    from headgate.advice.fetching import advice_request, interpret_fully
    from headgate.advice.freshness import fresh_for
    from headgate.advice.parser import result_to_json
    from headgate.fetch.fetcher import fetch_advice
    from headgate.http.url import serialised_origin

    found: dict[str, Any] = {"origin": serialised_origin(origin), "url": None, "result": None, "fresh_for": None}
    request = advice_request(origin, identity)
    if found["origin"] is None:
        return {**found, "reason": "invalid URL; expected a form such as https://example.com"}
    if request is None:
        return {**found, "reason": "advice is fetched only from https origins and from this machine"}
    response = fetch_advice(request, tls=tls)
    result, reason = interpret_fully(response, identity)
    seconds = fresh_for(response, result, now=time.time())
    return {**found, "url": request.url, "result": result_to_json(result), "fresh_for": seconds, "reason": reason}


@advice.command(short_help="Print errors and warnings for a document or an origin.")
@click.argument("what", metavar="FILE|-|ORIGIN")
@click.option(
    "--content-type", metavar="TYPE", help="Content-Type that FILE is served with; by default it is not checked."
)
@CA
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def check(*, what: str, content_type: str | None, ca: str | None, is_json: bool) -> None:
    """Print what a prefetch proxy reads of traffic advice in a file or from an origin, with errors and warnings.

    An argument that contains :// is an origin. The exit code is 1 if there are findings.

    \b
    headgate advice check traffic-advice.json
    headgate advice check traffic-advice.json --content-type application/json
    headgate advice check https://example.com
    """
    from headgate.advice.lint import lint_document

    if "://" not in what:
        fail_if(
            what != "-" and not Path(what).exists(),
            f"{printable(what)}: no such file; for an origin pass its URL, https://{printable(what)}",
        )
        report = lint_document(_read_document(what), content_type=content_type)
    elif content_type is None:
        report = _lint_origin(what, tls_context(ca))
    else:
        raise ConfigurationError("--content-type is for a FILE; an ORIGIN's own Content-Type is checked")
    if is_json:
        from headgate.advice.parser import result_to_json

        findings = [finding._asdict() for finding in report.findings]
        print_json({"conforming": result_to_json(report.conforming), "findings": findings})
    else:
        _print(printable(what), report)
    if report.findings:
        exit_with_failure()


def _lint_origin(origin: str, tls: Any) -> "AdviceReport":
    from headgate.advice.fetching import advice_request
    from headgate.advice.lint import DEPLOYED, lint_response
    from headgate.fetch.fetcher import fetch_advice

    request = advice_request(origin, DEPLOYED)
    if request is None:
        raise ConfigurationError(
            f"{printable(origin)}: advice is fetched only from https origins and from this machine"
        )
    # A document with the wrong media type is checked too.
    response = fetch_advice(request, tls=tls, wanted=lambda status, _fields: 200 <= status <= 299)
    return lint_response(response, now=time.time())


def _print(name: str, report: "AdviceReport") -> None:
    entry = report.conforming
    what = "no advice" if entry is None else f"a fraction of {entry.fraction:g}"
    click.echo(f"prefetch proxies read: {'traffic is disallowed' if entry and entry.disallowed else what}")
    for finding in report.findings:
        severity = style(finding.severity, fg=_COLOURS[finding.severity], bold=True)
        click.echo(f"{name}: {severity}: {printable(finding.message)} [{finding.code}]")
    click.echo(f"{name}: {format_count(len(report.findings), 'finding')}", err=True)


def _read_document(file: str) -> bytes:
    """Read a document from a file or standard input; raises `ConfigurationError` for an unreadable or too long one."""
    with report_read_errors(file), click.open_file(file, "rb") as document:
        data: bytes = document.read(_MAX_SIZE + 1)
    fail_if(
        len(data) > _MAX_SIZE, f"{printable(file)}: longer than {_MAX_SIZE >> 20} MiB, the limit for traffic advice"
    )
    return data
