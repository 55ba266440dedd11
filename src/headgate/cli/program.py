"""The program: its commands by name, and how it ends.

A command's module is imported when the command is asked for, so that `headgate --help` costs nothing else. Whatever
goes wrong ends here in one sentence on stderr: exit 0 done, 1 the answer is no, 2 wrong use or configuration, 130
and 141 for an interrupt and a closed pipe. Never a traceback, unless HEADGATE_TRACEBACK asks for one.
"""

import difflib
import errno
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import click
from click.core import ParameterSource

from headgate import __version__
from headgate.errors import ConfigurationError, HeadgateError, LinkError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Program", "main", "program"]

_COMMANDS = {
    "serve": "The gate: a reverse proxy that limits what reaches an origin.",
    "master": "A master for gatekeepers elsewhere.",
    "proxy": "The prefetch proxy: tunnels to origins that want them, which it asks first.",
    "get": "One polite fetch, which says what it was told and what it waited for.",
    "bundle": "Read, make, sign and serve bundles: many exchanges in one file.",
    "advice": "Read, fetch and check traffic advice: how much automated traffic an origin wants.",
    "token": "Make keys and tokens for a prefetch proxy, and the speculation rules that carry them.",
    "replay": "What a rule, or the throttle, would have done to a log.",
    "config": "Check, show or describe a configuration file.",
}
_HINTS = {
    "burst": "a rule is one argument, and needs quotes for its spaces: '10/s burst 20'",
    ".toml": "name a configuration file with --config",
}
"""What to do about an argument that a command does not take, by a part of it."""
_INTERRUPTED = 130
_CLOSED_PIPE = 141


class Program(click.Group):
    """A group whose commands are known by name and sentence, and imported only when asked for."""

    sentences: ClassVar[Mapping[str, str]] = _COMMANDS
    """What each command does."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """List the names, in the order a newcomer wants them."""
        return list(self.sentences)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        """Import the command's module; None for a name that is no command."""
        if cmd_name not in self.sentences:
            return None
        module, attribute = self.find(cmd_name)
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        _reject_empty_values(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first; raises `UsageError` with the nearest name where there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = difflib.get_close_matches(args[0], self.sentences, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no such command {args[0]!r}{hint}", ctx) from None

    def find(self, name: str) -> tuple[str, str]:
        """Give the module of a command that there is, and its name there."""
        return f"headgate.cli.{name}", name

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        """Write the commands' sentences without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.sentences.items()))


class _Text(click.ParamType[str]):
    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take any text but an empty one; a default may be."""
        given = ctx is not None and param is not None and ctx.get_parameter_source(param.name or "")
        if value == "" and given is ParameterSource.COMMANDLINE:
            self.fail("empty; give a value, or leave the option out", param, ctx)
        return str(value)


_TEXT = _Text()


def _reject_empty_values(command: click.Command) -> None:
    """Make every text option of a command refuse an empty value.

    It comes from a shell variable that is not set, and code that takes it for a missing option would ignore
    `--trust "$ROOTS"`. Arguments may be empty: a URL relative to another, a token to check.
    """
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.type is click.STRING:
            parameter.type = _TEXT
    if isinstance(command, click.Group):
        for nested in command.commands.values():
            _reject_empty_values(nested)


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: headgate serve --demo",
)
@click.version_option(__version__, message="headgate %(version)s")
def program() -> None:
    """Cooperative HTTP traffic control.

    A server under load is asked for exactly as much as it can serve, and everyone else waits politely.
    """


class _Whole(io.BufferedIOBase):
    """Standard output without a buffer (PYTHONUNBUFFERED): at once, and all of it, not what the system takes of it."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self.raw = raw
        self.fileno, self.isatty = raw.fileno, raw.isatty  # type: ignore[method-assign]

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, content: "ReadableBuffer") -> int:
        """Write."""
        rest = whole = memoryview(content).cast("B")
        while rest:
            count = self.raw.write(rest)
            if count is None:
                raise BlockingIOError(errno.EAGAIN, "standard output takes nothing now")
            rest = rest[count:]
        return len(whole)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program with `arguments`, by default those of the process, and exit."""
    _open_what_was_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            encoding = sys.stdout.encoding
            sys.stdout = io.TextIOWrapper(_Whole(sys.stdout.detach()), encoding, write_through=True)
        # What a terminal's encoding lacks is escaped, as on stderr, and is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(_run(arguments))


def _open_what_was_closed() -> None:
    """Give the process the standard streams it was started without.

    Else the first socket or file would take the number of one, and be written to by whoever means that stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # for good, and cheap


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Not `program.main`: it ends a closed pipe in its own way.
        with program.make_context("headgate", words) as context:
            program.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        # What is left in the buffer has nowhere to go; without this Python would say so while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except click.ClickException as error:
        return _complain(_usage(error), 2)
    except (ConfigurationError, LinkError) as error:
        return _complain(f"headgate: {error}", 2)
    except (HeadgateError, OSError) as error:
        return _complain(f"headgate: {error}", 1)
    except Exception as error:
        if os.environ.get("HEADGATE_TRACEBACK"):
            raise
        return _complain(
            f"headgate: a fault of its own, {type(error).__name__}: {error}; HEADGATE_TRACEBACK=1 shows where", 1
        )
    return 0


def _usage(error: click.ClickException) -> str:
    """Say a wrong use in one sentence that ends with where to read on."""
    words = " ".join(error.format_message().split()).rstrip(".")
    if words.startswith("Got unexpected extra argument"):
        words += "".join(f"; {hint}" for part, hint in _HINTS.items() if part in words)
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "headgate"
    return f"{path}: {words[:1].lower()}{words[1:]}; see '{path} --help'"


def _complain(sentence: str, code: int) -> int:
    try:
        sys.stderr.write(" ".join(sentence.split("\n")) + "\n")
        sys.stderr.flush()
    except OSError:
        return code
    return code
