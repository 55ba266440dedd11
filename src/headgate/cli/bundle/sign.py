"""`headgate bundle sign`: sign the responses with a certificate's key, or the file as a whole."""

import time
from datetime import UTC, datetime

import click

from headgate.cli.bundle.integrity import add_block
from headgate.cli.bundle.keys import KEY, passphrase_of, read_secret
from headgate.cli.bundle.output import OUT, output_target, progress_bar
from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.bundle.timestamps import TIMESTAMP, Timestamp
from headgate.cli.output import format_count, printable

_WEEK = Timestamp(7 * 86_400, relative=True)
_NOW = Timestamp(0, relative=True)


@click.command(short_help="Sign the responses, or the file as a whole.")
@with_source
@click.option("--certificate", metavar="C", help="The key's certificate chain: PEM, or application/cert-chain+cbor.")
@KEY
@click.option("--validity-url", metavar="U", help="Where readers look for a newer signature.")
@click.option("--date", type=TIMESTAMP, metavar="D", help="Valid from this time: RFC 3339, or +1h.  [default: now]")
@click.option(
    "--expires",
    type=TIMESTAMP,
    metavar="D",
    help="Valid until this time: RFC 3339, or +7d from the date.  [default: +7d]",
)
@click.option("--integrity-block", "whole", is_flag=True, help="Sign the file as a whole instead, with --key alone.")
@OUT
def sign(
    *,
    source: BundleSource,
    certificate: str | None,
    key: str | None,
    validity_url: str | None,
    date: Timestamp | None,
    expires: Timestamp | None,
    whole: bool,
    out: str,
) -> None:
    """Sign the responses in a bundle, or the file as a whole.

    With --certificate, a signature is added over every response whose host the certificate names, valid for seven days
    at most, where the certificate is trusted. With --integrity-block, a block before the bundle signs all of its bytes,
    and the web bundle id is derived from the key: for Isolated Web Apps (.swbn).

    \b
    headgate bundle sign site.wbn --certificate chain.pem --key key.pem \\
        --validity-url https://example.com/site.validity --expires +3d -o signed.wbn
    headgate bundle sign app.wbn --integrity-block --key ed25519.pem -o app.swbn
    """
    if key is None:
        raise click.UsageError("missing option '--key', the private key to sign with")
    if whole:
        _refuse_flags(certificate, validity_url, date, expires)
        add_block(source, key, out)
        return
    if certificate is None or validity_url is None:
        missing = "--certificate" if certificate is None else "--validity-url"
        raise click.UsageError(f"missing option '{missing}'; --integrity-block signs the file as a whole without it")
    begins = (date or _NOW).after(int(time.time()))
    ends = (expires or _WEEK).after(begins)
    from headgate.bundle.signing import sign_bundle

    with source.opened() as bundle, progress_bar("signing", bundle.raw) as progress:
        urls = sign_bundle(
            bundle,
            output_target(out),
            certificate=read_secret(certificate),
            key=read_secret(key),
            validity_url=validity_url,
            date=begins,
            expires=ends,
            passphrase=passphrase_of(key),
            progress=progress,
        )
    click.echo(f"{printable(out)}: {format_count(len(urls), 'URL')} signed until {_format(ends)}", err=True)


def _refuse_flags(*flags: object) -> None:
    if any(flag is not None for flag in flags):
        raise click.UsageError("--integrity-block excludes --certificate, --validity-url, --date and --expires")


def _format(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
