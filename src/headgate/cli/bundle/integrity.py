"""`headgate bundle integrity`: the block before a bundle that signs the file as a whole."""

from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.keys import KEY, passphrase_of, read_secret
from headgate.cli.bundle.opening import Reading, reads
from headgate.cli.bundle.output import OUT, meter, target_of
from headgate.cli.bundle.showing import print_json
from headgate.cli.terminal import harmless
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.bundle.integrity import IntegrityBlock

__all__ = ["add_block", "integrity"]


@click.group(short_help="Add, remove or show the integrity block of a file.")
def integrity() -> None:
    """Add, remove or show the integrity block: signatures over a whole file, by keys that are their own names."""


@integrity.command()
@reads
@KEY
@OUT
def add(*, source: Reading, key: str | None, out: str) -> None:
    """Add a signature to the integrity block, and the block where there is none.

    Signatures that other keys made stay, and one that this key made is replaced. The web bundle id of a new block is
    that of its first key.

    \b
    openssl genpkey -algorithm ed25519 -out key.pem
    headgate bundle integrity add app.wbn --key key.pem -o app.swbn
    """
    if key is None:
        raise click.UsageError("missing option '--key', the private key to sign with")
    add_block(source, key, out)


def add_block(source: Reading, key: str, out: str) -> None:
    """Write `source` to `out` with a signature by the key in the file `key` in its integrity block."""
    from headgate.bundle.signing import add_integrity

    with source.opened() as bundle, meter("signing", bundle.raw) as progress:
        secret, passphrase = read_secret(key), passphrase_of(key)
        name = add_integrity(bundle, target_of(out), key=secret, passphrase=passphrase, progress=progress)
    click.echo(f"{harmless(out)}: signed as web bundle {name}", err=True)


@integrity.command()
@reads
@KEY
@OUT
def remove(*, source: Reading, key: str | None, out: str) -> None:
    """Remove the integrity block or, with --key, only the signature by that key.

    \b
    headgate bundle integrity remove app.swbn -o app.wbn
    """
    from headgate.bundle.signing import remove_integrity

    with source.opened() as bundle, meter("writing", bundle.raw) as progress:
        secret, passphrase = (read_secret(key), passphrase_of(key)) if key else (None, None)
        remove_integrity(bundle, target_of(out), key=secret, passphrase=passphrase, progress=progress)


@integrity.command()
@reads
@KEY
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(*, source: Reading, key: str | None, as_json: bool) -> None:
    """Show the web bundle id, and the id of each key that signed; nothing is verified.

    With --key, also say the id of that key, and whether it is among them. A file without a block: exit code 1.

    \b
    headgate bundle integrity show app.swbn
    """
    with source.opened(as_json=as_json) as bundle:
        block = bundle.integrity_block
        if block is None:
            raise HeadgateError(f"{source.name} has no integrity block; integrity add makes one")
        fields = _fields(block, key)
    if as_json:
        print_json(fields)
        return
    width = max(map(len, fields))
    lines = [(name.replace("_", " "), value) for name, value in fields.items() if name != "signatures"]
    lines += [("signed by", value or "a kind of key that is not known here") for value in fields["signatures"]]
    click.echo("\n".join(f"{name:<{width}}  {harmless(str(value))}" for name, value in lines))


def _fields(block: "IntegrityBlock", key: str | None) -> dict[str, Any]:
    from headgate.bundle.signing import key_ids

    ids = key_ids(block)
    fields: dict[str, Any] = {"web_bundle_id": block.web_bundle_id, "version": block.version, "length": block.length}
    if key is not None:
        from headgate.bundle.signing.keys import read_private_key, web_bundle_id

        own = web_bundle_id(read_private_key(read_secret(key), passphrase=passphrase_of(key)).public_key())
        fields |= {"key": own, "signed_by_key": own in ids}
    return fields | {"signatures": list(ids)}
