"""`headgate bundle sign`: vouch for the responses with a certificate's key, or for the file as a whole."""

import time
from datetime import UTC, datetime

import click

from headgate.cli.bundle.integrity import add_block
from headgate.cli.bundle.keys import KEY, passphrase_of, read_secret
from headgate.cli.bundle.moments import MOMENT, Moment
from headgate.cli.bundle.opening import Reading, reads
from headgate.cli.bundle.output import OUT, meter, target_of
from headgate.cli.printing import counted
from headgate.cli.terminal import harmless

__all__ = ["sign"]

_WEEK = Moment(7 * 86_400, relative=True)
_NOW = Moment(0, relative=True)


@click.command(short_help="Vouch for the responses, or for the file as a whole.")
@reads
@click.option("--certificate", metavar="C", help="The key's certificate chain: PEM, or application/cert-chain+cbor.")
@KEY
@click.option("--validity-url", metavar="U", help="Where readers look for an update of the signature.")
@click.option("--date", type=MOMENT, metavar="D", help="From when it is valid: RFC 3339, or +1h.  [default: now]")
@click.option("--expires", type=MOMENT, metavar="D", help="Until when: RFC 3339, or +7d from the date.  [default: +7d]")
@click.option("--integrity-block", "whole", is_flag=True, help="Sign the file as a whole instead, by --key alone.")
@OUT
def sign(
    *,
    source: Reading,
    certificate: str | None,
    key: str | None,
    validity_url: str | None,
    date: Moment | None,
    expires: Moment | None,
    whole: bool,
    out: str,
) -> None:
    """Vouch for the responses in a bundle, or sign the file as a whole.

    With --certificate, a signature is added that vouches for every response whose host the certificate names, for
    seven days at most; it is as good as the certificate is trusted. With --integrity-block, a block before the bundle
    signs all of its bytes, and the key itself is the name (the web bundle id): as Isolated Web Apps (.swbn) want it.

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
        raise click.UsageError(f"missing option '{missing}'; or sign the file as a whole with --integrity-block")
    begins = (date or _NOW).after(int(time.time()))
    ends = (expires or _WEEK).after(begins)
    from headgate.bundle.signing import sign_bundle

    with source.opened() as bundle, meter("signing", bundle.raw) as progress:
        urls = sign_bundle(
            bundle,
            target_of(out),
            certificate=read_secret(certificate),
            key=read_secret(key),
            validity_url=validity_url,
            date=begins,
            expires=ends,
            passphrase=passphrase_of(key),
            progress=progress,
        )
    click.echo(f"{harmless(out)}: {counted(len(urls), 'URL')} vouched for until {_shown(ends)}", err=True)


def _refuse_flags(*flags: object) -> None:
    if any(flag is not None for flag in flags):
        raise click.UsageError(
            "--integrity-block takes --key alone; leave --certificate, --validity-url, --date and --expires out"
        )


def _shown(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
