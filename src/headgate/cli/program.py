"""The program: its commands, errors and exit codes.

The module of a command is imported when the command is called, so that `headgate --help` is fast. Every error becomes
one sentence on stderr. Exit codes: 0 success, 1 failure or the answer no, 2 invalid use or configuration, 130
interrupt, 141 closed pipe. A traceback is printed only if HEADGATE_TRACEBACK is set.
"""

import atexit
import difflib
import gc
import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any, ClassVar, cast

import click
from click.core import ParameterSource

from headgate.cli.output import printable
from headgate.errors import ConfigurationError, HeadgateError, LinkError, MissingExtra
from headgate.version import VERSION

_COMMANDS = {
    "init": "Write a first configuration file.",
    "serve": "Run a gate: a reverse proxy that limits the requests that reach an origin.",
    "demo": "Show an overload with and without headgate, live, in two minutes.",
    "ctl": "Ask a running server why a client was refused; hold and release clients.",
    "replay": "Apply a rule, or the throttle, to a log; suggest a rule.",
    "master": "Run a master for gatekeepers elsewhere.",
    "router": "Spread the accounting of gatekeepers over several masters.",
    "sidecar": "Run a gatekeeper for nginx or HAProxy, or print a configuration for them or Envoy.",
    "proxy": "Run a prefetch proxy that obeys the traffic advice of origins.",
    "get": "Fetch a URL politely, and explain waits and advice.",
    "advice": "Parse, fetch and check traffic advice: how much automated traffic an origin accepts.",
    "bundle": "Read, create, sign and serve bundles: many exchanges in one file.",
    "token": "Create and check tokens for a prefetch proxy.",
    "keys": "Create keys for the bus between gates and masters, and for tokens.",
    "config": "Check, show or describe a configuration file.",
    "doctor": "Check this machine: limits, ports, clocks, permissions, versions, configuration.",
}
_FIRST_MINUTES = """\
headgate: HTTP traffic control, for origins and for the programs that ask them

  headgate demo      show an overload without and with the gate, in two minutes
  headgate init      write a first headgate.toml; then run: headgate serve
  headgate serve     limit the requests of each client in front of an origin
  headgate replay    try a rule on an access log, or get one suggested
  headgate ctl       ask a running gate why a client was refused
  headgate get       fetch a URL as a polite agent does
  headgate doctor    check limits, ports, clocks, files and versions of this machine
All commands: headgate --help. One command: headgate serve --help"""
"""What the program prints without arguments."""
_HINTS = {
    "burst": "a rule is one argument; quote it if it has spaces: '10/s burst 20'",
    ".toml": "name a configuration file with --config",
}
"""Hints for an unexpected argument, by a part of it."""
_OTHER_NAMES = {
    "lint": ["check", "config check"],
    "validate": ["check", "config check"],
    "create": ["new", "mint"],
    "generate": ["new", "mint"],
    "run": ["serve"],
    "start": ["serve"],
    "help": ["--help"],
    "version": ["--version"],
}
"""Words that other programs use, and commands and options of this one with the same meaning."""
_SERVER_LIBRARIES = {"h2", "prometheus_client", "starlette", "uvicorn", "zmq"}
"""What the extras `gate` and `proxy` install."""
_CLOSED_PIPE = 141
_COMPLETE = "_HEADGATE_COMPLETE"
"""The variable with which a shell asks for completions, as click names it."""


class CommandGroup(click.Group):
    """Lists its commands in the order they are defined; the error for an unknown name has the nearest one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Return the names, the most used first."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command by the first argument; raise `UsageError` with the nearest name if it is unknown."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            names = [*self.list_commands(ctx), *(name for param in self.get_params(ctx) for name in param.opts)]
            near = [name for name in _OTHER_NAMES.get(args[0], ()) if name.split()[0] in names]
            near = near or difflib.get_close_matches(args[0], names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no such command {args[0]!r}{hint}", ctx) from None


class Program(CommandGroup):
    """A group that knows its commands by name and summary, and imports a command when it is called."""

    sentences: ClassVar[Mapping[str, str]] = _COMMANDS
    """The summary of each command."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Return the names, the most used first."""
        return list(self.sentences)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        """Import the command's module; return None for an unknown name."""
        if cmd_name not in self.sentences:
            return None
        module, attribute = self.find(cmd_name)
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        _reject_empty_values(command)
        return command

    def find(self, name: str) -> tuple[str, str]:
        """Return the module of a known command, and its name there."""
        return f"headgate.cli.{name}", name

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        """Write the summaries of the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.sentences.items()))


class _Text(click.ParamType[str]):
    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Accept any text that is not empty; a default may be empty."""
        given = ctx is not None and param is not None and ctx.get_parameter_source(param.name or "")
        if value == "" and given is ParameterSource.COMMANDLINE:
            self.fail("empty; give a value, or leave the option out", param, ctx)
        return str(value)


_TEXT = _Text()


def _reject_empty_values(command: click.Command) -> None:
    """Make every text option of a command reject an empty value.

    An empty value usually comes from an unset shell variable; treating it as a missing option would ignore
    `--trust "$ROOTS"`. Arguments may be empty: a relative URL, a token to check.
    """
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.type is click.STRING:
            parameter.type = _TEXT
    if isinstance(command, click.Group):
        for nested in command.commands.values():
            _reject_empty_values(nested)


def installed() -> dict[str, list[str]]:
    """Return the installed libraries with their versions, the extras that are whole, and those that are not."""
    from importlib import metadata

    libraries: dict[str, str] = {}
    extras: dict[str, bool] = {}
    with suppress(metadata.PackageNotFoundError):  # a source tree on PYTHONPATH
        for requirement in metadata.requires("headgate") or ():
            name, extra = re.findall(r"^[\w.-]+|(?<=extra == .)[\w-]+|$", requirement)[:2]
            with suppress(metadata.PackageNotFoundError):
                libraries[name] = metadata.version(name)
            extras[extra] = extras.get(extra, True) and name in libraries
    return {
        "libraries": [*map(" ".join, sorted(libraries.items()))],
        "extras": [extra for extra, is_complete in extras.items() if extra and is_complete],
        "not installed": [extra for extra, is_complete in extras.items() if not is_complete],
    }


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  # click's signature
    """Print the versions of headgate and its installed libraries, and the extras that lack one."""
    if value:
        click.echo(f"headgate {VERSION}")
        for title, values in installed().items():
            click.echo(f"{title}: {', '.join(values) or 'none'}")
        ctx.exit()


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: headgate init, or headgate demo",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and which libraries and extras are installed.",
)
def program() -> None:
    """Cooperative HTTP traffic control.

    A gate limits the requests that reach an origin, and says when to try again; polite agents wait until then.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program with `arguments`, by default those of the process; return its exit code."""
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            # Unbuffered (PYTHONUNBUFFERED): this writes all of its input, in several system calls if needed.
            encoding, buffer = sys.stdout.encoding, io.BufferedWriter(cast("io.RawIOBase", sys.stdout.detach()), 1)
            sys.stdout = io.TextIOWrapper(buffer, encoding, write_through=True)
            sys.__stdout__ = sys.stdout  # type: ignore[misc]  # `shutil.get_terminal_size` asks its descriptor
        # Escape characters that the terminal's encoding lacks, as stderr does, instead of failing.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Otherwise the interpreter searches all modules for garbage before it ends, which takes a fifth of a short command.
    atexit.register(gc.freeze)
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(program, {}, "headgate", _COMPLETE, instruction)
    return _run(arguments)


def _open_missing_streams() -> None:
    """Open the standard streams that the process was started without.

    Otherwise the first socket or file would get the descriptor of such a stream, and receive its output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # open until the process ends


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Not `program.main`: it handles a closed pipe itself.
        with program.make_context("headgate", words) as context, _missing_extra(words):
            program.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message() if words else _FIRST_MINUTES, err=bool(words))
        return 2 if words else 0
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except BrokenPipeError:
        # Discards the rest of the buffer; otherwise Python prints an error when it flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except click.ClickException as error:
        return _print_error(_usage_sentence(error, words), 2)
    except (ConfigurationError, LinkError) as error:
        return _print_error(f"headgate: {error}", 2)
    except (HeadgateError, OSError) as error:
        return _print_error(f"headgate: {error}", 1)
    except Exception as error:
        if os.environ.get("HEADGATE_TRACEBACK"):
            raise
        return _print_error(
            f"headgate: internal error: {type(error).__name__}: {error}; set HEADGATE_TRACEBACK=1 for a traceback", 1
        )
    return 0


@contextmanager
def _missing_extra(words: Sequence[str]) -> Iterator[None]:
    """Raise `MissingExtra` if the command needs a library that is installed with the servers only."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _SERVER_LIBRARIES:
            raise
        command = " ".join(takewhile(str.isalpha, words))
        raise MissingExtra("proxy" if command == "proxy" else "gate", command) from None


def _usage_sentence(error: click.ClickException, words: Sequence[str]) -> str:
    """Return a usage error as one sentence that ends with the command for help; `words` are the arguments."""
    sentence = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        flags = {flag.lstrip("-"): flag for parameter in context.command.params for flag in parameter.opts}
        near = difflib.get_close_matches(error.option_name.lstrip("-"), flags, n=1)
        sentence = f"no such option {error.option_name}{f'; did you mean {flags[near[0]]}?' if near else ''}"
    elif sentence.startswith("Got unexpected extra argument"):
        sentence += "".join(f"; {hint}" for part, hint in _HINTS.items() if part in sentence)
    path = context.command_path if context else _command_path(words)
    see = " See" if sentence.endswith("?") else "; see"
    return f"{path}: {sentence[:1].lower()}{sentence[1:]}{see} '{path} --help'"


def _command_path(words: Sequence[str]) -> str:
    """Return the command that the arguments begin with, for errors that click raises without a context."""
    path: list[str] = ["headgate"]
    command: click.Group = program
    for word in words:
        nested = command.get_command(click.Context(command), word)
        if nested is None:
            break
        path.append(word)
        if not isinstance(nested, click.Group):
            break
        command = nested
    return " ".join(path)


def _print_error(sentence: str, code: int) -> int:
    with suppress(OSError):
        sys.stderr.write(printable(" ".join(sentence.split("\n"))) + "\n")
        sys.stderr.flush()
    return code
