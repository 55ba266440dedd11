"""The sentences of a document: how they are told apart, and how a quotation is known for one without the document.

The documents are no part of this repository. What is kept of each, in `sentences/`, is a line for each of its sentences
in order: the section, how many words the sentence has, and its digest. That is enough to say whether a page quotes all
of them, and to the letter. `python -m tests.conformance.sentences DOCUMENT` prints the list of a document.

An item of a list is a sentence, with its number; a name that stands on a line of its own is one with what follows it.
All whitespace is one space, but none follows the hyphen at which a line breaks a word; typographic apostrophes are
plain. Headings, the headers and footers of pages, the title page, the table of contents, the index, the references and
the author's address are no sentences.
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
    """What is kept of a sentence."""

    section: str
    words: int
    digest: str


def sentences(document: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence of a document's text with its section: `("3", "DDoS attacks have become common.")`."""
    section, term = "", ""
    # A page ends within a sentence or behind one; only in the latter case, a paragraph may end there too.
    document = _BREAK.sub(lambda found: "\n" if _goes_on(document, found) else "\n\n", document)
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


def _goes_on(document: str, found: "re.Match[str]") -> bool:
    return document[found.start() - 1] not in ".:;" and not _MARK.match(document[found.end() :])


def _paragraphs(document: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph; an item of a list is one, and so is what follows it less indented."""
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


def known(section: str, sentence: str) -> Sentence:
    """Give what is kept of a sentence."""
    words = sentence.split()
    return Sentence(section.replace(" ", "_"), len(words), _digest(words))


def _digest(words: list[str]) -> str:
    return sha256(" ".join(words).encode()).hexdigest()[:20]


def kept(path: Path) -> list[Sentence]:
    """Read the list of a document's sentences."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return [Sentence(section, int(words), digest) for section, words, digest in rows]


def quoted(quotation: str, kept: list[Sentence]) -> list[str]:
    """Give the digests of the sentences that a quotation consists of; raises `ValueError` at the first other word."""
    lengths: defaultdict[int, set[str]] = defaultdict(set)
    for sentence in kept:
        lengths[sentence.words].add(sentence.digest)
    words, start = quotation.split(), 0
    found: list[str] = []
    while start < len(words):
        for length in sorted(lengths, reverse=True):
            digest = _digest(words[start : start + length])
            if start + length <= len(words) and digest in lengths[length]:
                break
        else:
            raise ValueError(f"no sentence of the document begins so: {' '.join(words[start : start + 8])}")
        found.append(digest)
        start += length
    return found


if __name__ == "__main__":
    for section, sentence in sentences(Path(sys.argv[1]).read_text()):
        print(*known(section, sentence))
