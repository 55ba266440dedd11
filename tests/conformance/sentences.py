"""The sentences of a document, and how quotations are checked without the document.

The documents are not part of this repository. For each, `sentences/` contains one line per sentence, in order: its
section, its number of words and its digest. That is enough to check whether a page quotes all of them literally.
`python -m tests.conformance.sentences DOCUMENT` prints the list of a document.

An item of a list is a sentence, with its number; a name on a line of its own belongs to the text that follows it. All
whitespace is one space, except that none follows the hyphen at which a line breaks a word; typographic apostrophes
become plain. Headings, the headers and footers of pages, the title page, the table of contents, the index, the
references and the author's address are left out.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

_BREAK = re.compile(r"\n+\S[^\n]*\[Page \d+\]\n+Internet-Draft[^\n]*\n+")
_NAMED = r"Status of this Memo|Copyright Notice|Abstract|Acknowledgment"
_LEFT_OUT = r"Table of Contents|Author's Address|Index|References|Normative References|Informative References"
_HEADING = re.compile(rf"(?:(\d+(?:\.\d+)*)\. +\S.*|({_NAMED})|{_LEFT_OUT})$")
_MARK = re.compile(r"\s*(?:(?:\d+\.|[a-d]\)|o)\s+)")
_END = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.?!]) (?=[A-Z\"])")


class Sentence(NamedTuple):
    """The stored form of a sentence."""

    section: str
    words: int
    digest: str


def sentences(document: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence of a document's text with its section: `("3", "DDoS attacks have become common.")`."""
    section, term = "", ""
    # A page ends within a sentence or after one; only after one, a paragraph may end there, too.
    document = _BREAK.sub(lambda found: "\n" if _continues(document, found) else "\n\n", document)
    for lines in _paragraphs(document):
        heading = _HEADING.match(lines[0])
        if heading:
            section = heading[1] or heading[2] or ""
        elif section:
            text = f"{term} {_plain(lines)}".strip()
            is_term = not (term or _MARK.match(lines[0]) or text.endswith((".", ":")))
            term = text if is_term else ""
            if not is_term:
                yield from ((section, sentence) for sentence in _split(text))


def _continues(document: str, found: "re.Match[str]") -> bool:
    return document[found.start() - 1] not in ".:;" and not _MARK.match(document[found.end() :])


def _paragraphs(document: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph; each item of a list is a paragraph."""
    lines: list[str] = []
    for line in [*document.splitlines(), ""]:
        if lines and (not line.strip() or _MARK.match(line) or _HEADING.match(line)):
            yield lines
            lines = []
        if line.strip():
            lines.append(line.rstrip())


def _plain(lines: list[str]) -> str:
    text = re.sub(r"(?<=\w-)\n\s*(?=\w)", "", "\n".join(lines)).replace("’", "'")
    return " ".join(re.sub(r"^\s*o\s", "", text).split())


def _split(text: str) -> list[str]:
    mark = _MARK.match(text)
    start = mark.end() if mark else 0
    first, *others = _END.split(text[start:])
    return [text[:start] + first, *others]


def stored_form(section: str, sentence: str) -> Sentence:
    """Return the stored form of a sentence."""
    words = sentence.split()
    return Sentence(section.replace(" ", "_"), len(words), _digest(words))


def _digest(words: list[str]) -> str:
    return sha256(" ".join(words).encode()).hexdigest()[:20]


def read_list(path: Path) -> list[Sentence]:
    """Read the list of a document's sentences."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return [Sentence(section, int(words), digest) for section, words, digest in rows]


def quoted_digests(quotation: str, listed: list[Sentence]) -> list[str]:
    """Return the digests of the sentences of a quotation; raises `ValueError` at the first other word."""
    lengths: defaultdict[int, set[str]] = defaultdict(set)
    for sentence in listed:
        lengths[sentence.words].add(sentence.digest)
    words, start = quotation.split(), 0
    found: list[str] = []
    while start < len(words):
        for length in sorted(lengths, reverse=True):
            digest = _digest(words[start : start + length])
            if start + length <= len(words) and digest in lengths[length]:
                break
        else:
            raise ValueError(f"not a sentence of the document: {' '.join(words[start : start + 8])}")
        found.append(digest)
        start += length
    return found


if __name__ == "__main__":
    for section, sentence in sentences(Path(sys.argv[1]).read_text()):
        print(*stored_form(section, sentence))
