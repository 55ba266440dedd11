"""`headgate bundle integrity`: the block before a bundle, with signatures over the whole file."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.keys import KEY, passphrase_of, read_secret
from headgate.cli.bundle.output import output_target, progress_bar
from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.output import json_line, printable
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.bundle.format.integrity_block import IntegrityBlock


_OUTPUT: Callable[..., Any] = click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    help="Output file, - for standard output.  [default: FILE is rewritten]",
)


@click.group(short_help="Add, remove or show the integrity block of a file.")
def integrity() -> None:
    """Add, remove or show the integrity block: signatures over a whole file."""


@integrity.command()
@with_source
@KEY
@_OUTPUT
def add(*, source: BundleSource, key: str | None, out: str | None) -> None:
    """Add a signature to the integrity block, or a block if there is none.

    Signatures by other keys stay, one by this key is replaced. The web bundle id of a new block is derived from its
    first key.

    \b
    openssl genpkey -algorithm ed25519 -out key.pem
    headgate bundle integrity add app.wbn --key key.pem -o app.swbn
    """
    if key is None:
        raise click.UsageError("missing option '--key', the private key to sign with")
    add_block(source, key, _output(source, out))


def add_block(source: BundleSource, key: str, out: str) -> None:
    """Write `source` to `out` with a signature by the key in the file `key` in its integrity block."""
    from headgate.bundle.signing import add_integrity

    with source.opened() as bundle, progress_bar("signing", bundle.raw) as progress:
        secret, passphrase = read_secret(key), passphrase_of(key)
        name = add_integrity(bundle, output_target(out), key=secret, passphrase=passphrase, progress=progress)
    click.echo(f"{printable(out)}: signed as web bundle {name}", err=True)


@integrity.command()
@with_source
@KEY
@_OUTPUT
def remove(*, source: BundleSource, key: str | None, out: str | None) -> None:
    """Remove the integrity block or, with --key, only the signature by that key.

    The signature by the key of the web bundle id must be the last to be removed: the others need it to be valid.

    \b
    headgate bundle integrity remove app.swbn -o app.wbn
    """
    from headgate.bundle.signing import remove_integrity

    target = output_target(_output(source, out))
    with source.opened() as bundle, progress_bar("writing", bundle.raw) as progress:
        secret, passphrase = (read_secret(key), passphrase_of(key)) if key is not None else (None, None)
        remove_integrity(bundle, target, key=secret, passphrase=passphrase, progress=progress)


@integrity.command()
@with_source
@KEY
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-o", "--output", "out", metavar="OUT", default="-", help="Output file.  [default: standard output]")
def show(*, source: BundleSource, key: str | None, as_json: bool, out: str) -> None:
    """Show the web bundle id, and the id of each key that signed. Nothing is verified.

    With --key, also show the id of that key, and whether it is one of them. Without a block, the exit code is 1.

    \b
    headgate bundle integrity show app.swbn
    """
    target = output_target(out)
    with source.opened(as_json=as_json) as bundle:
        block = bundle.integrity_block
        if block is None:
            raise HeadgateError(f"{source.name} has no integrity block; add one with: headgate bundle integrity add")
        fields = _fields(block, key)
    text = json_line(fields) if as_json else _lines(fields)
    if out == "-":
        click.echo(text, nl=False)
        return
    from headgate.bundle.files.atomic_file import open_output

    content = text.encode() if isinstance(text, str) else text
    with open_output(target, len(content)) as output:
        output.put(content)


def _output(source: BundleSource, out: str | None) -> str:
    """Return the output: `out` or, without it, the file that was read if it holds a bundle alone."""
    if out is None and source.is_url:
        raise click.UsageError("missing option '-o'; a bundle at a URL cannot be rewritten")
    if out is None and source.from_end:
        raise click.UsageError("missing option '-o'; rewriting FILE would lose the data before the bundle")
    return source.file if out is None else out


def _lines(fields: dict[str, Any]) -> str:
    """Return the fields as text."""
    width = max(map(len, fields))
    lines = [(name.replace("_", " "), value) for name, value in fields.items() if name != "signatures"]
    lines += [("signed by", value or "an unknown kind of key") for value in fields["signatures"]]
    return "".join(f"{name:<{width}}  {printable(str(value))}\n" for name, value in lines)


def _fields(block: "IntegrityBlock", key: str | None) -> dict[str, Any]:
    from headgate.bundle.signing import key_ids

    ids = key_ids(block)
    fields: dict[str, Any] = {"web_bundle_id": block.web_bundle_id, "version": block.version, "length": block.length}
    if key is not None:
        from headgate.bundle.signing.keys import read_private_key, web_bundle_id

        own = web_bundle_id(read_private_key(read_secret(key), passphrase=passphrase_of(key)).public_key())
        fields |= {"key": own, "signed_by_key": own in ids}
    return fields | {"signatures": list(ids)}
