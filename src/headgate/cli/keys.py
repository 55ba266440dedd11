"""`headgate keys`: create the keys of the bus, of tokens for a prefetch proxy, and of agents that sign requests.

All files of a command are created or none, whole, and never in place of an existing file.
"""

import os
import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import reduce
from pathlib import Path
from typing import Final

import click

from headgate.cli.config import warn
from headgate.cli.output import print_bytes, print_json, printable
from headgate.cli.params import COUNT
from headgate.cli.program import CommandGroup
from headgate.config.toml_reader import key_file_warnings, read_text
from headgate.errors import ConfigurationError, explaining, fail_if, naming, reason_of

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


@click.group(cls=CommandGroup, epilog="Start with: headgate keys new -o DIR")
def keys() -> None:
    """Create keys for the bus between gates, sidecars, routers and masters, for tokens, and for agents.

    With keys, the bus is encrypted (CURVE), and a master or router accepts only peers whose public keys are in its
    list. Each machine has a key pair of its own: its secret key stays there, its public key goes to the other side.

    \b
    each machine: headgate keys new -o DIR
    the master:   headgate master --curve-key DIR/secret.key --curve-allow allowed.keys …
    a gate:       headgate serve --curve-key DIR/secret.key --curve-server MASTER/public.key --master …
    a sidecar:    the two options of a gate
    a router:     all three options, as it is a master to gates and a gate to masters

    Tokens for a prefetch proxy (see: headgate token) need a key of another kind: headgate keys new-token.

    An agent signs its requests with a key of its own, and publishes the public one:

    \b
    headgate keys new --agent
    headgate keys directory key.json > directory.json
    """


@keys.command(short_help="Create a key pair for the bus, or a key of an agent.")
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    default=".",
    show_default=True,
    help="Directory of the two files; created if it does not exist.",
)
@click.option("--agent", is_flag=True, help="Create DIR/key.json instead, with which an agent signs its requests.")
def new(*, folder: str, agent: bool) -> None:
    """Create a key pair for the bus: DIR/secret.key, which only its owner can read, and DIR/public.key.

    Existing files are never overwritten. The files are certificates as czmq and pyzmq read them. With --agent, it is
    one file, DIR/key.json, which only its owner can read: a JSON Web Key (Ed25519) for Web Bot Auth.

    \b
    headgate keys new -o keys
    headgate keys new --agent
    """
    with explaining(f"{printable(folder)} cannot be created", "name another directory"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    if agent:
        _new_agent_key(str(Path(folder) / "key.json"))
        return
    from headgate.link.curve import new_key_pair

    pair = new_key_pair()
    secret, public = str(Path(folder) / "secret.key"), str(Path(folder) / "public.key")
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


def _new_agent_key(file: str) -> None:
    from headgate.identity import new_signing_key, write_signing_key

    key = new_signing_key(entropy=os.urandom)
    create_files([(file, write_signing_key(key), SECRET_MODE)])
    click.echo(f"""\
{printable(file)}: the key {key.key_id}; keep it secret

Publish the public key, and sign with it:
  headgate keys directory {printable(shlex.quote(file))}
  Courtesy("ExampleBot/1.0", key={printable(file)!r}, agent_url="https://bot.example")""")


_DESCRIPTION: Final = (
    click.option("--name", metavar="NAME", default="", help="Name of the agent, such as ExampleBot/1.0."),
    click.option("--agent-url", "url", metavar="URL", default="", help="Where its keys are: https://bot.example."),
    click.option("--info", metavar="URL", default="", help="Page about the agent."),
    click.option("--rate", metavar="RULE", default="", help="Its rate for each origin, as rate= of Courtesy."),
    click.option("--contact", metavar="URI", default="", help="Contact, such as mailto:bot@example.com."),
    click.option("--ranges-url", metavar="URL", default="", help="Where its IP ranges are, as JSON."),
)


def _described(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe an agent."""
    return reduce(lambda made, option: option(made), reversed(_DESCRIPTION), function)


@keys.command("directory", short_help="Print the public keys of an agent, or its card.")
@click.argument("files", metavar="FILE...", nargs=-1)
@click.option("--card", "is_card", is_flag=True, help="Print the Signature Agent Card instead; FILE is not needed.")
@_described
def directory(*, files: tuple[str, ...], is_card: bool, **options: str) -> None:
    """Print the directory of an agent's public keys, from key files, as a JSON Web Key Set.

    It belongs at /.well-known/http-message-signatures-directory of the host of the agent. Name the next key's file too,
    before you sign with it. A gate serves and signs it: web_bot_auth.publish in its file.

    With --card, the Signature Agent Card, whose client_id is where it belongs. It needs --name and --agent-url.

    \b
    headgate keys directory key.json
    headgate keys directory --card --name ExampleBot/1.0 --agent-url https://bot.example --rate 1/s
    """
    from headgate.identity import PublicKey, read_signing_keys, write_directory

    if is_card:
        from headgate.cli.agent_documents import card

        print_json(card(**options))
        return
    fail_if(not files, "no key file; make one with: headgate keys new --agent")
    for warning in key_file_warnings(*files):
        warn(warning)
    found: list[PublicKey] = []
    for file in files:
        content = read_text(file, advice="make one with: headgate keys new --agent")
        with naming(printable(file)):
            found += [key.public for key in read_signing_keys(content.encode())]
    print_bytes(write_directory(found) + b"\n")


@keys.command("page", short_help="Print a page that explains an agent.")
@_described
@click.option("--purpose", metavar="TEXT", default="", help="What the responses are used for.")
@click.option("--range", "ranges", metavar="CIDR", multiple=True, help="Range that it sends from; repeatable.")
@click.option("--json", "is_json", is_flag=True, help="Print the IP ranges as JSON, for --ranges-url.")
def page(*, is_json: bool, ranges: tuple[str, ...], **options: str) -> None:
    """Print an HTML page that explains a crawler to the operators of sites, or with --json its IP ranges for programs.

    It says how to recognize the crawler, how fast it is, how to block it and what it does with responses. Serve it at
    the URL that the agent sends (info= of Courtesy). It needs --name and --agent-url.

    \b
    headgate keys page --name ExampleBot/1.0 --agent-url https://bot.example --range 192.0.2.0/24 > bot.html
    """
    from headgate.cli import agent_documents

    if is_json:
        print_json(agent_documents.ranges_document(ranges, now=time.time()))
    else:
        print_bytes(agent_documents.page(ranges=ranges, **options).encode())


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
