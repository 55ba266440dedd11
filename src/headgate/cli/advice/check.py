"""`headgate advice check`: print errors and warnings for traffic advice in a file or from an origin."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.advice.options import CA, as_json, document_of, trusted
from headgate.cli.output import exit_with_failure, format_count, print_json, printable, style
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.advice.lint import Finding, Report
    from headgate.advice.parser import AdviceEntry


_COLOURS = {"error": "red", "warning": "yellow"}


@click.command(short_help="Print errors and warnings for a document or an origin.")
@click.argument("what", metavar="FILE|-|ORIGIN")
@click.option("--content-type", metavar="T", help="Content-Type that FILE is served with; not checked without.")
@CA
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def check(*, what: str, content_type: str | None, ca: str | None, is_json: bool) -> None:
    """Print errors and warnings for traffic advice in a file or from an origin.

    The output also shows how a prefetch proxy that follows the document reads it, and how the largest deployed proxy
    does, which differs. An argument that contains :// is an origin. The exit code is 1 if there are findings.

    \b
    headgate advice check traffic-advice.json
    headgate advice check traffic-advice.json --content-type application/json
    headgate advice check https://example.com
    """
    if "://" not in what:
        if what != "-" and not Path(what).exists():
            raise ConfigurationError(
                f"{printable(what)}: no such file; for an origin pass its URL, https://{printable(what)}"
            )
        report = _of_file(what, content_type)
    elif content_type is None:
        report = _of_origin(what, trusted(ca))
    else:
        raise ConfigurationError("--content-type is for a FILE; an ORIGIN's own Content-Type is checked")
    if is_json:
        readers = {"conforming": as_json(report.conforming), "deployed": as_json(report.deployed)}
        print_json({**readers, "findings": [finding._asdict() for finding in report.findings]})
    else:
        _print(printable(what), report)
    if report.findings:
        exit_with_failure()


def _of_file(file: str, content_type: str | None) -> "Report":
    from headgate.advice.lint import lint_document

    return lint_document(document_of(file), content_type=content_type)


def _of_origin(origin: str, tls: Any) -> "Report":
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
    return lint_response(response, now=time.time(), is_secure=request.url.startswith("https:"))


def _print(name: str, report: "Report") -> None:
    click.echo(f"agents that follow the document: {_describe(report.conforming)}")
    click.echo(f"the largest deployed proxy: {_describe(report.deployed)}")
    for finding in report.findings:
        click.echo(_line(name, finding))
    click.echo(f"{name}: {format_count(len(report.findings), 'finding')}", err=True)


def _line(name: str, finding: "Finding") -> str:
    """Write a finding as compilers do."""
    severity = style(finding.severity, fg=_COLOURS[finding.severity], bold=True)
    return f"{name}: {severity}: {printable(finding.message)} [{finding.code}]"


def _describe(entry: "AdviceEntry | None") -> str:
    if entry is None:
        return "no advice"
    return "traffic is disallowed" if entry.disallowed else f"a fraction of {entry.fraction:g}"
