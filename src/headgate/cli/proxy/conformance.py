"""`headgate proxy --conformance`: what is required of such a proxy, and which of it is met."""

import click

from headgate.cli.printing import counted, end_with_no, styled
from headgate.cli.terminal import harmless
from headgate.config.proxy import Proxy
from headgate.proxy.conformance import conforms, requirements
from headgate.runtime.prefetch_proxy.build import check_proxy

__all__ = ["print_conformance"]


def print_conformance(proxy: Proxy) -> None:
    """Print a line for each requirement; ends with exit code 1 where one is not met that is insisted on."""
    check_proxy(proxy)
    rows = requirements(proxy)
    for row in rows:
        verdict = styled("met    ", fg="green") if row.is_met else styled("not met", fg="red")
        click.echo(f"{verdict}  {row.section}  {row.level:<11}  {row.words}: {harmless(row.how)}")
    click.echo()
    missing = [row for row in rows if not row.is_met]
    if conforms(rows):
        click.echo(f"all that the draft insists on is met, and {counted(len(missing), 'recommendation')} of it not")
        return
    insisted = [row for row in missing if row.level in {"MUST", "STEP"}]
    click.echo(f"{counted(len(insisted), 'requirement')} not met, and {len(missing) - len(insisted)} recommended")
    end_with_no()
