"""`headgate bundle verify`: verify the signatures of a bundle."""

import time
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.keys import read_secret
from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.output import exit_with_failure, format_count, print_json, printable, progress, style

if TYPE_CHECKING:
    from headgate.bundle.signing import Verification


@click.command(short_help="Verify the signatures of a bundle.")
@with_source
@click.option(
    "--trust",
    metavar="C",
    help="PEM: trusted root certificates, or the signing certificates themselves, such as a self-signed one. Without "
    "it no certificate is trusted.",
)
@click.option("--any-certificate", is_flag=True, help="Accept every certificate, self-signed ones too.")
@click.option("--web-bundle-id", metavar="ID", help="The web bundle id that the integrity block must have.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(
    *, source: BundleSource, trust: str | None, any_certificate: bool, web_bundle_id: str | None, as_json: bool
) -> None:
    """Verify the signatures of a bundle: those of its integrity block, and those over its responses.

    Exit code 0: there is at least one signature, and every one is valid. A signature over responses needs a
    trusted root (--trust), and is untrusted without. An integrity block needs none: it is valid if the key that the web
    bundle id is derived from signed the whole file; --web-bundle-id checks that this is the id you expect.
    Removed signatures cannot be detected.

    \b
    headgate bundle verify app.swbn --web-bundle-id 4tkrnsmftl4ggvvdkfth3piainqragus2qbhf7rlz2a3wo3rh4wqaaic
    headgate bundle verify signed.wbn --trust roots.pem --json
    """
    if trust is not None and any_certificate:
        raise click.UsageError("--trust and --any-certificate exclude each other; give one of them")
    roots = read_secret(trust) if trust is not None else None
    from headgate.bundle.signing import verify_bundle

    with source.opened(as_json=as_json) as bundle, progress("verifying", None):
        found = verify_bundle(
            bundle, now=time.time(), trust=roots, any_certificate=any_certificate, web_bundle_id=web_bundle_id
        )
    if as_json:
        print_json(_fields(found))
    else:
        click.echo("\n".join(_lines(source.name, found)))
    if found.result == "untrusted" and roots is None and not as_json:
        click.echo("headgate: --trust C names trusted roots, and --any-certificate accepts every certificate", err=True)
    if not found.valid:
        exit_with_failure()


def _fields(found: "Verification") -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(found)
    return {"result": found.result, **fields}


def _lines(name: str, found: "Verification") -> list[str]:
    """Return the result as text."""
    if not found.signatures:
        return [style(f"{name}: not signed", fg="red", bold=True)]
    result = style(found.result.replace("-", " "), fg="green" if found.valid else "red", bold=True)
    lines = [f"{name}: {result}"]
    if found.web_bundle_id is not None:
        lines.append(f"web bundle id: {printable(found.web_bundle_id)}")
    for signature in found.signatures:
        scope = f" over {format_count(len(signature.urls), 'URL')}" if signature.urls else ""
        reason = f": {printable(signature.reason)}" if signature.reason else ""
        lines.append(f"{signature.kind}{scope}: {'valid' if signature.valid else 'not valid'}{reason}")
    unchecked = dict.fromkeys(sentence for signature in found.signatures for sentence in signature.unchecked)
    return lines + [f"not checked: {sentence}" for sentence in unchecked]
