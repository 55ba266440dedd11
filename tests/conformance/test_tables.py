"""The tables in docs/conformance: each row names a clause, an existing file, and a test that quotes the clause.

If `sentences/` lists the sentences of a document, its page quotes each of them, and nothing else.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.sentences import quoted_digests, read_list, sentences, stored_form

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "docs" / "conformance").glob("*.md"))
LISTS = sorted((Path(__file__).parent / "sentences").glob("*.txt"))


def lines_of(table):
    """Return the cells of each line of the page's tables, by the heading of the first column."""
    found, first = {"clause": [], "sentence": []}, ""
    for line in table.splitlines():
        if line.startswith("| "):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if cells[0] in found:
                first = cells[0]
            else:
                found[first].append(tuple(cells))
    return found


def rows(table):
    """Return clause, file and test of each row."""
    found = lines_of(table.read_text())["clause"]
    assert all(all(cells) for cells in found)
    return [(cells[0], *cells[-2:]) for cells in found]


def quoting_tests(table):
    """Return each test of the document's file with its docstring in one line."""
    tree = ast.parse((ROOT / "tests" / "conformance" / f"test_{table.stem}.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
    return {
        f"{node.name}.{test.name}": " ".join((ast.get_docstring(test) or "").split())
        for node in classes
        for test in node.body
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
    }


def unquoted(page, listed):
    """Return the sentences that a page lacks, and those that it lists both with and without a test."""
    found = lines_of(page)
    with_tests, without = (
        Counter(digest for cells in found[first] for digest in quoted_digests(cells[0], listed))
        for first in ("clause", "sentence")
    )
    wanted = Counter(sentence.digest for sentence in listed)
    lacking = set(wanted - with_tests - without) | (set(with_tests) & set(without))
    return [sentence for sentence in listed if sentence.digest in lacking]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_test_in_a_table_quotes_its_clause(table):
    tests = quoting_tests(table)
    assert rows(table)
    for clause, file, test in rows(table):
        path = re.fullmatch(r"\[[^\]]+\]\(([^)]+)\)", file)
        assert path, file
        assert (table.parent / path[1]).is_file(), file
        assert clause in tests[test.strip("`")], test


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_test_is_in_the_table(table):
    assert sorted(test.strip("`") for _, _, test in rows(table)) == sorted(quoting_tests(table))


def test_every_document_with_tests_has_a_table():
    documents = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert documents - {"tables"} == {table.stem for table in TABLES}


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_sentence_of_a_document_is_quoted_literally(path):
    page = (ROOT / "docs" / "conformance" / f"{path.stem}.md").read_text()
    assert unquoted(page, read_list(path)) == []


def test_lists_exist():
    assert {"anti_ddos_throttling", "traffic_advice"} <= {path.stem for path in LISTS}


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_missing_or_changed_sentence_is_detected(path):
    listed, page = read_list(path), (ROOT / "docs" / "conformance" / f"{path.stem}.md").read_text()
    quoting = re.findall(r"^\| (?!clause|sentence).*\n", page, re.MULTILINE)
    assert len(quoting) > 90
    for line in quoting[::5]:
        # A sentence may be in two tables; then it is still there without one of them.
        rest = page.replace(line, "", 1)
        is_still_there = f"\n{line.split(' | ')[0]} | " in rest
        assert bool(unquoted(rest, listed)) is not is_still_there, line
        with pytest.raises(ValueError, match="not a sentence of the document: not "):
            unquoted(page.replace(line, f"| not {line[2:]}", 1), listed)


DOCUMENT = """\
Some Group                                                    A. Author

Abstract

   Says what an agent does.

2. Rules

   Agents (e.g. Browsers) wait for 1.5
   seconds, i.e. A while. They are non-

Author                  Expires April 6, 2012                  [Page 1]

Internet-Draft                  Example                    October 2011

   blocking. In code:

   o the agent’s
     first

   o second.

     a) Let x be 1. Go on.
     b) end

Field

value

Author's Address

   A. Author, Somewhere
"""


def test_sentences_of_a_document():
    assert list(sentences(DOCUMENT)) == [
        ("Abstract", "Says what an agent does."),
        ("2", "Agents (e.g. Browsers) wait for 1.5 seconds, i.e. A while."),
        ("2", "They are non-blocking."),
        ("2", "In code:"),
        ("2", "the agent's first"),
        ("2", "second."),
        ("2", "a) Let x be 1."),
        ("2", "Go on."),
        ("2", "b) end"),
        ("2", "Field value"),
    ]


def test_quotation_consists_of_whole_sentences():
    listed = [stored_form(*sentence) for sentence in sentences(DOCUMENT)]
    assert quoted_digests("Go on. b) end", listed) == [sentence.digest for sentence in listed[7:9]]
    for words in ("Go on. b)", "Go", "In code: the agent’s first", "go on."):
        with pytest.raises(ValueError, match="not a sentence"):
            quoted_digests(words, listed)
