"""`headgate bundle integrity`: the block before a bundle that signs the file as a whole."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.keys import KEY, passphrase_of, read_secret
from headgate.cli.bundle.opening import Reading, reads
from headgate.cli.bundle.output import meter, target_of
from headgate.cli.printing import json_line
from headgate.cli.terminal import harmless
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.bundle.format.integrity_block import IntegrityBlock

__all__ = ["add_block", "integrity"]

_INTO: Callable[..., Any] = click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    help="The result, and - is standard output.  [default: FILE itself is rewritten]",
)


@click.group(short_help="Add, remove or show the integrity block of a file.")
def integrity() -> None:
    """Add, remove or show the integrity block: signatures over a whole file, by keys that are their own names."""


@integrity.command()
@reads
@KEY
@_INTO
def add(*, source: Reading, key: str | None, out: str | None) -> None:
    """Add a signature to the integrity block, and the block where there is none.

    Signatures that other keys made stay, and one that this key made is replaced. The web bundle id of a new block is
    that of its first key.

    \b
    openssl genpkey -algorithm ed25519 -out key.pem
    headgate bundle integrity add app.wbn --key key.pem -o app.swbn
    """
    if key is None:
        raise click.UsageError("missing option '--key', the private key to sign with")
    add_block(source, key, _into(source, out))


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
@_INTO
def remove(*, source: Reading, key: str | None, out: str | None) -> None:
    """Remove the integrity block or, with --key, only the signature by that key.

    The key that the web bundle id comes from is the last to go: no other signature would be valid without it.

    \b
    headgate bundle integrity remove app.swbn -o app.wbn
    """
    from headgate.bundle.signing import remove_integrity

    target = target_of(_into(source, out))
    with source.opened() as bundle, meter("writing", bundle.raw) as progress:
        secret, passphrase = (read_secret(key), passphrase_of(key)) if key is not None else (None, None)
        remove_integrity(bundle, target, key=secret, passphrase=passphrase, progress=progress)


@integrity.command()
@reads
@KEY
@click.option("--json", "as_json", is_flag=True, help="Show one JSON object.")
@click.option(
    "-o", "--output", "out", metavar="OUT", default="-", help="For what is shown.  [default: standard output]"
)
def show(*, source: Reading, key: str | None, as_json: bool, out: str) -> None:
    """Show the web bundle id, and the id of each key that signed; nothing is verified.

    With --key, also say the id of that key, and whether it is among them. A file without a block: exit code 1.

    \b
    headgate bundle integrity show app.swbn
    """
    target = target_of(out)
    with source.opened(as_json=as_json) as bundle:
        block = bundle.integrity_block
        if block is None:
            raise HeadgateError(f"{source.name} has no integrity block; integrity add makes one")
        fields = _fields(block, key)
    shown = json_line(fields) if as_json else _lines(fields)
    if out == "-":
        click.echo(shown, nl=False)
        return
    from headgate.bundle.files.atomic_file import open_output as writing

    content = shown.encode() if isinstance(shown, str) else shown
    with writing(target, len(content)) as output:
        output.put(content)


def _into(source: Reading, out: str | None) -> str:
    """Give what to write to: `out` or, without it, what was read; a file with more than a bundle in it is spared."""
    if out is None and source.from_end:
        raise click.UsageError("missing option '-o'; what stands before the bundle in FILE would be lost")
    return source.file if out is None else out


def _lines(fields: dict[str, Any]) -> str:
    """Write what is shown for people."""
    width = max(map(len, fields))
    lines = [(name.replace("_", " "), value) for name, value in fields.items() if name != "signatures"]
    lines += [("signed by", value or "a kind of key that is not known here") for value in fields["signatures"]]
    return "".join(f"{name:<{width}}  {harmless(str(value))}\n" for name, value in lines)


def _fields(block: "IntegrityBlock", key: str | None) -> dict[str, Any]:
    from headgate.bundle.signing import key_ids

    ids = key_ids(block)
    fields: dict[str, Any] = {"web_bundle_id": block.web_bundle_id, "version": block.version, "length": block.length}
    if key is not None:
        from headgate.bundle.signing.keys import read_private_key, web_bundle_id

        own = web_bundle_id(read_private_key(read_secret(key), passphrase=passphrase_of(key)).public_key())
        fields |= {"key": own, "signed_by_key": own in ids}
    return fields | {"signatures": list(ids)}
