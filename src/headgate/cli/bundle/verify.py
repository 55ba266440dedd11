"""`headgate bundle verify`: whether the signatures of a bundle hold."""

import time
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.keys import read_secret
from headgate.cli.bundle.opening import Reading, reads
from headgate.cli.printing import counted, end_with_no, print_json, styled
from headgate.cli.terminal import harmless, progress

if TYPE_CHECKING:
    from headgate.bundle.signing import Verification

__all__ = ["verify"]


@click.command(short_help="Whether the signatures of a bundle hold.")
@reads
@click.option(
    "--trust",
    metavar="C",
    help="PEM: the roots that certificates must lead to, or the very certificates that sign, such as one signed by "
    "itself; else nobody asks where they lead.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(*, source: Reading, trust: str | None, as_json: bool) -> None:
    """Verify the signatures of a bundle: those of its integrity block, and those that vouch for its responses.

    The exit code is 0 only where there is at least one signature and all of them hold. Anybody can take a signature
    out of a bundle: what holds says who signed, not that nobody else did.

    \b
    headgate bundle verify app.swbn
    headgate bundle verify signed.wbn --trust roots.pem --json
    """
    roots = read_secret(trust) if trust else None
    from headgate.bundle.signing import verify_bundle

    with source.opened(as_json=as_json) as bundle, progress("verifying", None):
        found = verify_bundle(bundle, now=time.time(), trust=roots)
    if as_json:
        print_json(_fields(found))
    else:
        click.echo("\n".join(_lines(source.name, found)))
    if not found.valid:
        end_with_no()


def _fields(found: "Verification") -> dict[str, Any]:
    return {
        "valid": found.valid,
        "web_bundle_id": found.web_bundle_id,
        "signatures": [
            {"kind": signature.kind, "valid": signature.valid, "reason": signature.reason}
            for signature in found.signatures
        ],
    }


def _lines(name: str, found: "Verification") -> list[str]:
    """Write the answer for people."""
    if not found.signatures:
        return [styled(f"{name}: not signed", fg="red", bold=True)]
    answer = styled("valid", fg="green", bold=True) if found.valid else styled("not valid", fg="red", bold=True)
    lines = [f"{name}: {answer}"]
    if found.web_bundle_id is not None:
        lines.append(f"web bundle id: {harmless(found.web_bundle_id)}")
    for signature in found.signatures:
        scope = f" over {counted(len(signature.urls), 'URL')}" if signature.urls else ""
        why = f": {harmless(signature.reason)}" if signature.reason else ""
        lines.append(f"{signature.kind}{scope}: {'valid' if signature.valid else 'not valid'}{why}")
    unchecked = dict.fromkeys(sentence for signature in found.signatures for sentence in signature.unchecked)
    return lines + [f"not checked: {sentence}" for sentence in unchecked]
