"""`headgate keys`: create the keys of the bus between gates and masters, and those of tokens for a prefetch proxy.

All files of a command are created or none, whole, and never in place of an existing file.
"""

import os
import shlex
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import click

from headgate.cli.output import print_bytes, printable
from headgate.cli.params import COUNT
from headgate.cli.program import CommandGroup
from headgate.errors import ConfigurationError, reason_of

SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644


def create_files(files: list[tuple[str, bytes, int]]) -> None:
    """Create all files, each a name, content and mode, or none of them; the name - writes standard output.

    Raises `ConfigurationError` if one exists or cannot be written.
    """
    with ExitStack() as created:
        for name, content, mode in files:
            if name == "-":
                print_bytes(content)
                continue
            try:
                _create(name, content, mode)
            except FileExistsError:
                raise ConfigurationError(
                    f"{printable(name)} exists already; key files are not overwritten, so choose another name"
                ) from None
            except OSError as error:
                raise ConfigurationError(f"{printable(name)} cannot be written: {reason_of(error)}") from None
            created.callback(_remove, name)
        created.pop_all()


def _create(name: str, content: bytes, mode: int) -> None:
    """Create a file; a program that opens it at any time finds all of its content, or no file."""
    partial = f"{name}.{os.getpid()}.partial"
    if Path(name).is_symlink() or Path(name).exists():
        raise FileExistsError
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.link(partial, name)  # unlike a rename, it fails if the name exists by now
    finally:
        _remove(partial)


def _remove(name: str) -> None:
    with suppress(OSError):
        Path(name).unlink()


_SECRET_FILE: Final = "secret.key"  # noqa: S105  # the name of a file
_PUBLIC_FILE: Final = "public.key"


@click.group(cls=CommandGroup, epilog="Start with: headgate keys new -o DIR")
def keys() -> None:
    """Create keys for the bus between gates, sidecars, routers and masters, and for tokens.

    With keys, the bus is encrypted (CURVE), and a master or router accepts only peers whose public keys are in its
    list. Each machine has a key pair of its own: its secret key stays there, its public key goes to the other side.

    \b
    each machine: headgate keys new -o DIR
    the master:   headgate master --curve-key DIR/secret.key --curve-allow allowed.keys …
    a gate:       headgate serve --curve-key DIR/secret.key --curve-server MASTER/public.key --master …
    a sidecar:    the two options of a gate
    a router:     all three options, as it is a master to gates and a gate to masters

    Tokens for a prefetch proxy (see: headgate token) need a key of another kind: headgate keys new-token.
    """


@keys.command(short_help="Create a key pair for the bus.")
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    default=".",
    show_default=True,
    help="Directory of the two files; created if it does not exist.",
)
def new(*, folder: str) -> None:
    """Create a key pair for the bus: DIR/secret.key, which only its owner can read, and DIR/public.key.

    Existing files are never overwritten. The files are certificates as czmq and pyzmq read them.

    \b
    headgate keys new -o keys
    """
    from headgate.link.curve import new_key_pair

    pair = new_key_pair()
    secret, public = str(Path(folder) / _SECRET_FILE), str(Path(folder) / _PUBLIC_FILE)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{printable(folder)} cannot be created: {reason_of(error)}") from None
    create_files([(secret, pair.secret_file(), SECRET_MODE), (public, pair.public_file(), PUBLIC_MODE)])
    secret, public, key = printable(shlex.quote(secret)), printable(shlex.quote(public)), pair.public.decode()
    click.echo(f"""\
{secret}: the secret key; it stays on this machine
{public}: the public key {key}; the other side needs it

For a master, collect the public keys of its gates and routers in one file, and start it with that file:
  cat GATE/public.key >> allowed.keys
  headgate master --curve-key {secret} --curve-allow allowed.keys …
For a gate, add {public} to the file of its master, and copy the public key of the master:
  headgate serve --curve-key {secret} --curve-server MASTER/public.key --master …
For a router, do both: it accepts gates, and connects to masters:
  headgate router --curve-key {secret} --curve-allow allowed.keys --curve-server MASTER/public.key --master …""")


@keys.command("new-token", short_help="Create a key that mints and checks tokens of a prefetch proxy.")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="FILE",
    default="key.json",
    show_default=True,
    help="Key file to create; - writes standard output.",
)
@click.option(
    "--max-ttl",
    type=COUNT,
    metavar="SECONDS",
    default=86_400,
    show_default=True,
    help="Maximum lifetime of a token in seconds.",
)
def new_token(*, out: str, max_ttl: int) -> None:
    """Create a key in a file that only its owner can read; an existing file is never overwritten.

    The site and its proxies share the secret, so a proxy that checks tokens can also mint them. The file is a JSON Web
    Key. To replace a key without refusing valid tokens, give the proxies both keys before you give the site the new
    one.

    \b
    headgate keys new-token -o key.json
    """
    from headgate.token import new_key
    from headgate.token.keys import write_keys

    create_files([(out, write_keys([new_key(entropy=os.urandom, max_ttl=max_ttl)]), SECRET_MODE)])
    what = "keep it secret; it mints and checks tokens (headgate proxy --token-key)"
    click.echo(f"{printable(out)}: {what}", err=True)
