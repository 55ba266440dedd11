"""List the quoted sentences of the four documents with the tests that prove them: `make conformance`.

Without an argument, writes one page a document to build/conformance. With the folder of the documents, also checks
that each quotation stands in its document literally: `python scripts/conformance.py FOLDER`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "conformance"


class Quotation(NamedTuple):
    """A sentence of a document, and the test that proves it."""

    document: str
    section: str
    sentence: str
    test: str


def quotations(folder: Path) -> Iterator[Quotation]:
    """Yield the quotations of all tests below a folder, in order of files and lines."""
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{path.relative_to(folder.parent)}::{node.name}"
                for decorator in node.decorator_list:
                    yield from _decorated(decorator, name)


def _decorated(decorator: ast.expr, test: str) -> Iterator[Quotation]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "quotes":
        place, *sentences = [ast.literal_eval(argument) for argument in decorator.args]
        document, _, section = place.partition(" ")
        yield from (Quotation(document, section, sentence, test) for sentence in sentences)


def is_literal(sentence: str, document: str) -> bool:
    """Return whether all parts of a quotation stand in the document in this order, whatever the line breaks."""
    text, start = _plain(document), 0
    for part in re.split(r"\[(?:…|\.\.\.)\]", sentence):
        found = text.find(_plain(part), start)
        if found < 0:
            return False
        start = found + len(_plain(part))
    return True


def _plain(text: str) -> str:
    """Return a text without what pages and markup add: white space, quotation marks and emphasis."""
    text = re.sub(r"\n+\S[^\n]*\[Page \d+\]\n+[^\n]*\n+", "", text)
    return re.sub(r"[\s\"'`*_\u201c\u201d\u2019]+", "", text)


def page(document: str, found: list[Quotation]) -> str:
    """Return the page of one document."""
    rows = [f"| {one.section} | {one.sentence.replace('|', chr(92) + '|')} | `{one.test}` |" for one in found]
    return "\n".join([f"# {document}\n", "| section | sentence | test |", "|---|---|---|", *rows]) + "\n"


def main(arguments: list[str]) -> int:
    """Write the pages; return 1 if a quotation does not stand in its document."""
    found = list(quotations(ROOT / "tests"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for document in sorted({one.document for one in found}):
        rows = sorted((one for one in found if one.document == document), key=lambda one: one.section)
        (FOLDER / f"{document}.md").write_text(page(document, rows), encoding="utf-8")
        print(f"{FOLDER / document}.md: {len(rows)} sentences")
    wrong = 0
    for folder in arguments:
        texts = {file.stem: file.read_text(encoding="utf-8") for file in Path(folder).glob("*.txt")}
        for one in found:
            if not is_literal(one.sentence, texts[one.document]):
                wrong += 1
                print(f"{one.test}: not in {one.document}: {one.sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
