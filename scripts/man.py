"""Write a man page for each command, from its help, to build/man: part of `make man`."""

import re
from pathlib import Path

import click

from headgate.cli.program import program
from headgate.version import VERSION
from scripts.reference import commands

FOLDER = Path(__file__).parents[1] / "build" / "man"


def man_pages() -> dict[str, str]:
    """Return the pages by their file names."""
    return {f"{path.replace(' ', '-')}.1": _page(path, text) for path, text in commands(program, "headgate", None)}


def _page(path: str, text: str) -> str:
    usage, _, rest = click.unstyle(text).partition("\n\n")
    name, summary = path.replace(" ", "-"), " ".join(rest.strip().partition("\n\n")[0].split())
    lines = [
        f'.TH "{name.upper()}" "1" "" "headgate {VERSION}"',
        *(".SH NAME", f"{_escape(name)} \\- {_escape(summary)}"),
        *(".SH SYNOPSIS", _escape(" ".join(usage.removeprefix("Usage: ").split()))),
        *(".SH DESCRIPTION", ".nf", *map(_escape, rest.splitlines()), ".fi"),
    ]
    return "\n".join(lines) + "\n"


def _escape(line: str) -> str:
    """Escape what troff would read as a request, an escape or a hyphen."""
    return re.sub(r"^(?=[.'])", r"\\&", line.replace("\\", "\\e").replace("-", "\\-"))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in man_pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
