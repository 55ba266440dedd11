"""`headgate bundle sign` and `verify`: signatures over responses, and over a file as a whole."""

import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.output import OUT, output_target, progress_bar
from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.output import (
    exit_with_failure,
    format_count,
    print_json,
    printable,
    progress,
    report_read_errors,
    style,
)
from headgate.cli.params import Parsed, misuse_if
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.bundle.signing import Verification


_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_LATER = re.compile(r"([+-]\d{1,9})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def read_secret(file: str) -> bytes:
    """Read a key or certificates; raises `ConfigurationError` for a file that cannot be read."""
    with report_read_errors(file):
        return Path(file).read_bytes()


def passphrase_of(file: str) -> Callable[[], bytes] | None:
    """Return a prompt for the passphrase of an encrypted key; None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return lambda: str(click.prompt(f"passphrase of {file}", hide_input=True, err=True)).encode()


def parse_time(text: str) -> datetime | timedelta:
    """Read a time in RFC 3339, or one such as +7d that counts from another."""
    with suppress(ValueError, OverflowError):
        if later := _LATER.fullmatch(text):
            return timedelta(seconds=int(later[1]) * _UNITS[later[2]])
        if _RFC_3339.fullmatch(text):
            return datetime.fromisoformat(text.upper())
    raise ConfigurationError(f"invalid time {text!r}; expected 2030-01-31T12:00:00Z, or +7d (s, m, h, d, w)")


def seconds_since_1970(time: datetime | timedelta, base: int) -> int:
    """Return a time in seconds since 1970, without their fraction; a relative one counts from `base`."""
    return int(time.timestamp()) if isinstance(time, datetime) else base + int(time.total_seconds())


_TIME = Parsed("time", parse_time)
_WEEK = timedelta(days=7)
_NOW = timedelta()


@click.command(short_help="Sign the responses, or the file as a whole.")
@with_source
@click.option(
    "--certificate", metavar="FILE", help="Certificate chain of the key: PEM, or application/cert-chain+cbor."
)
@click.option("--key", metavar="FILE", help="Private key, PEM: Ed25519 or P-256 for an integrity block, else P-256.")
@click.option("--validity-url", metavar="URL", help="Where readers look for a newer signature.")
@click.option("--date", type=_TIME, metavar="TIME", help="Valid from this time: RFC 3339, or +1h.  [default: now]")
@click.option(
    "--expires",
    type=_TIME,
    metavar="TIME",
    help="Valid until this time: RFC 3339, or +7d from the date.  [default: +7d]",
)
@click.option("--integrity-block", "whole", is_flag=True, help="Sign the file as a whole instead, with --key alone.")
@click.option("--remove", is_flag=True, help="Remove the integrity block or, with --key, the signature by that key.")
@OUT
def sign(
    *,
    source: BundleSource,
    certificate: str | None,
    key: str | None,
    validity_url: str | None,
    date: datetime | timedelta | None,
    expires: datetime | timedelta | None,
    whole: bool,
    remove: bool,
    out: str,
) -> None:
    """Sign the responses in a bundle, or the file as a whole.

    With --certificate, a signature is added over every response whose host the certificate names, valid for seven days
    at most, where the certificate is trusted. With --integrity-block, a block before the bundle signs all of its bytes,
    and the web bundle id is derived from the first key: for Isolated Web Apps (.swbn). Signatures by other keys stay,
    one by this key is replaced.

    \b
    headgate bundle sign site.wbn --certificate chain.pem --key key.pem \\
        --validity-url https://example.com/site.validity --expires +3d -o signed.wbn
    headgate bundle sign app.wbn --integrity-block --key ed25519.pem -o app.swbn
    headgate bundle sign app.swbn --remove -o app.wbn
    """
    if whole or remove:
        if any(flag is not None for flag in (certificate, validity_url, date, expires)):
            name = "remove" if remove else "integrity-block"
            raise click.UsageError(f"--{name} excludes --certificate, --validity-url, --date and --expires")
    elif key is not None and (certificate is None or validity_url is None):
        missing = "--certificate" if certificate is None else "--validity-url"
        raise click.UsageError(f"missing option '{missing}'; --integrity-block signs the file as a whole without it")
    misuse_if(key is None and not remove, "missing option '--key', the private key to sign with")
    from headgate.bundle.signing import add_integrity, remove_integrity, sign_bundle

    target = output_target(out)
    with source.opened() as bundle, progress_bar("removing" if remove else "signing") as progress:
        options: dict[str, Any] = {"progress": progress}
        if key is not None:
            options |= {"key": read_secret(key), "passphrase": passphrase_of(key)}
        if remove:
            remove_integrity(bundle, target, **options)
            return
        if whole:
            done = f"signed as web bundle {add_integrity(bundle, target, **options)}"
        else:
            begins = seconds_since_1970(_NOW if date is None else date, int(time.time()))
            ends = seconds_since_1970(_WEEK if expires is None else expires, begins)
            options |= {"certificate": read_secret(str(certificate)), "validity_url": validity_url}
            urls = sign_bundle(bundle, target, date=begins, expires=ends, **options)
            done = (
                f"{format_count(len(urls), 'URL')} signed until {datetime.fromtimestamp(ends, UTC):%Y-%m-%dT%H:%M:%SZ}"
            )
    click.echo(f"{printable(out)}: {done}", err=True)


@click.command(short_help="Verify the signatures of a bundle.")
@with_source
@click.option(
    "--trust",
    metavar="FILE",
    help="Trusted root certificates, PEM, or the signing certificates themselves, such as a self-signed one. Without "
    "it no certificate is trusted.",
)
@click.option("--any-certificate", is_flag=True, help="Accept every certificate, self-signed ones too.")
@click.option("--web-bundle-id", metavar="ID", help="Web bundle id that the integrity block must have.")
@click.option("--allow-unsigned", is_flag=True, help="Accept URLs that no signature covers; they are still counted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(
    *,
    source: BundleSource,
    trust: str | None,
    any_certificate: bool,
    web_bundle_id: str | None,
    allow_unsigned: bool,
    as_json: bool,
) -> None:
    """Verify the signatures of a bundle: those of its integrity block, and those over its responses.

    Exit code 0: every signature is valid, and together they cover every response, the primary URL and the manifest URL.
    An integrity block covers the whole file, a signature over responses the URLs that it lists; a bundle with other
    URLs is partly signed. A signature over responses needs a trusted root (--trust), and is untrusted without. An
    integrity block needs none: it is valid if the key that the web bundle id is derived from signed the whole file;
    --web-bundle-id checks that this is the id you expect. Removed signatures cannot be detected.

    \b
    headgate bundle verify app.swbn --web-bundle-id 4tkrnsmftl4ggvvdkfth3piainqragus2qbhf7rlz2a3wo3rh4wqaaic
    headgate bundle verify signed.wbn --trust roots.pem --json
    """
    misuse_if(
        trust is not None and any_certificate, "--trust and --any-certificate exclude each other; give one of them"
    )
    roots = read_secret(trust) if trust is not None else None
    from headgate.bundle.signing import verify_bundle

    with source.opened(as_json=as_json) as bundle, progress("verifying", None):
        found = verify_bundle(
            bundle, now=time.time(), trust=roots, any_certificate=any_certificate, web_bundle_id=web_bundle_id
        )
    if as_json:
        import msgspec

        print_json({"result": found.result, **msgspec.to_builtins(found)})
    else:
        click.echo("\n".join(_verification_lines(source.name, found)))
    if found.result == "untrusted" and roots is None and not as_json:
        click.echo("headgate: --trust FILE names trusted roots; --any-certificate accepts every certificate", err=True)
    if not (found.valid or (allow_unsigned and found.result == "partly-signed")):
        exit_with_failure()


def _verification_lines(name: str, found: "Verification") -> list[str]:
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
    unsigned = found.unsigned_urls
    if found.result == "partly-signed":
        lines.append(f"{format_count(unsigned.count, 'URL')} without a signature:")
        lines += [f"  {printable(url)}" for url in unsigned.first]
        lines += [f"  and {unsigned.count - len(unsigned.first)} more"] * (unsigned.count > len(unsigned.first))
    unchecked = dict.fromkeys(sentence for signature in found.signatures for sentence in signature.unchecked)
    return lines + [f"not checked: {sentence}" for sentence in unchecked]
