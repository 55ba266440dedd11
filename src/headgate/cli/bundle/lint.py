"""`headgate bundle lint`: what readers refuse in a bundle, and what is allowed but unwise."""

from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.output import exit_with_failure, format_count, print_json, printable, report_read_errors, style

if TYPE_CHECKING:
    from headgate.bundle.lint import Finding


@click.command(short_help="Check every part of a bundle: errors and warnings.")
@with_source
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def lint(*, source: BundleSource, as_json: bool) -> None:
    """Check every part of a bundle: errors and warnings.

    An error is what readers refuse: the first in each part, which are the preamble, the section lengths, each section
    and each response. A warning is what is allowed but unwise; with --profile compat also what that profile accepts.
    The exit code is 1 if there is an error.

    \b
    headgate bundle lint site.wbn
    headgate bundle lint --json site.wbn | jq -r '.errors[].code'
    """
    from headgate.bundle.lint import lint as linted

    file = source.file
    with report_read_errors(file):
        content, base_url = source.read()
        report = linted(content, profile=source.profile, from_end=source.from_end, base_url=base_url)
    if as_json:
        print_json({"errors": [*map(_fields, report.errors)], "warnings": [*map(_fields, report.warnings)]})
    else:
        lines = [_line(file, finding, style("error", fg="red", bold=True)) for finding in report.errors]
        lines += [_line(file, finding, style("warning", fg="yellow", bold=True)) for finding in report.warnings]
        click.echo("".join(f"{line}\n" for line in lines), nl=False)
        counts = f"{format_count(len(report.errors), 'error')}, {format_count(len(report.warnings), 'warning')}"
        click.echo(f"{source.name}: {counts}", err=True)
    if report.errors:
        exit_with_failure()


def _fields(finding: "Finding") -> dict[str, Any]:
    return {"code": finding.code, "message": finding.message, "step": finding.step, "offset": finding.offset}


def _line(file: str, finding: "Finding", kind: str) -> str:
    """Return a finding in the form of compilers, which editors recognize."""
    place = "" if finding.offset is None else f":{finding.offset}"
    step = f" ({finding.step})" if finding.step else ""
    return f"{printable(file)}{place}: {kind}: {printable(finding.message)}{step} [{finding.code}]"
