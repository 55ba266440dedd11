"""Help, errors and documentation use plain technical English."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headgate.cli.program import program

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headgate"

AVOIDED = {
    '"X is no Y"; write "invalid Y" and what is expected': (
        r"(?<!\bthere )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|need\b|such\b|effect\b|default\b|limit\b"
        r"|response\b|body\b|domain\b|room\b)[a-z'{…]"
    ),
    "persons for programs or input; write client, peer, user, process or untrusted input": (
        r"\b(?:nobody|somebody|anybody|everybody|whoever|whomever|strangers?)\b"
    ),
    "riddles; name the thing": (
        r"\b(?:what|that|which|it|its [a-z ]+|fields?|name) (?:is|are|was|were) none\b|\bis none of (?!them\b)"
        r"|\b(?:is|are) told of\b|\bsee[sn]? to (?:it|a|the)\b|\bmade less of\b"
    ),
    "metaphors; use the field's word": (
        r"\b(?:moods?|buried|bury|dust|amid|shelf|shelves|storefront|leaflet|sufferer)\b"
    ),
}


def avoided(text: str) -> list[str]:
    """Return what is to be avoided in a text, each with the words found."""
    words = " ".join(text.split())
    found = [(reason, match) for reason, pattern in AVOIDED.items() for match in re.finditer(pattern, words, re.I)]
    return [f"{words[max(0, match.start() - 40) : match.end() + 30]!r}: {reason}" for reason, match in found]


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield each command's path with its help, the command itself included."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            nested = command.get_command(context, name)
            assert nested is not None
            yield from commands(nested, click.Context(nested, context, name))


def literals(node: ast.AST) -> Iterator[str]:
    """Yield the texts below a node; the values in a formatted text are an ellipsis."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from literals(child)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every text of a source file with its line: messages, log lines, bodies of responses and docstrings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.JoinedStr, ast.Constant)):
            yield from ((node.lineno, text) for text in literals(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            yield node.lineno, node.value.decode("latin-1")


def test_help_of_every_command():
    # With the settings of the program: click keeps the option for help that it makes first.
    context = click.Context(program, info_name="headgate", **program.context_settings)
    found = dict(commands(program, context))
    assert {"headgate serve", "headgate proxy", "headgate bundle create", "headgate token mint"} <= found.keys()
    assert {path: reasons for path, text in found.items() if (reasons := avoided(text))} == {}


def test_texts_and_docstrings_of_the_source():
    found = {
        f"{path.relative_to(ROOT)}:{line}": reasons
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in texts(path)
        if (reasons := avoided(text))
    }
    assert found == {}


def test_every_kind_of_text_is_read(tmp_path):
    source = tmp_path / "source.py"
    source.write_text('def f(x):\n    """Doc."""\n    log.info("line %s", x)\n    return [b"body", f"is {x} no"]\n')
    assert set(texts(source)) == {(2, "Doc."), (3, "line %s"), (4, "body"), (4, "is … no"), (4, "is "), (4, " no")}


def test_documentation():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    # Conformance pages quote the documents.
    read = [page for page in pages if "conformance" not in page.parts]
    found = {
        f"{page.relative_to(ROOT)}:{number}": reasons
        for page in read
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if (reasons := avoided(line))
    }
    assert len(read) > 5
    assert found == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("'x' is no rule", 1),
        ("the limit is no longer in force", 0),
        ("Whoever asks", 1),
        ("more keys than anybody reads", 1),
        ("for what is none", 1),
        ("a field that is none", 1),
        ("invalid rule 'x'; expected a form such as '10/s'", 0),
    ],
)
def test_what_is_avoided(text, count):
    assert len(avoided(text)) == count
