"""`headgate bundle extract`: every payload as a file below DIR/files, and everything else in DIR/exchanges.json.

Only what is made here is written to: DIR/files is a new directory, so no symbolic link in it leads elsewhere.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.naming import Names
from headgate.cli.bundle.opening import Reading, reads
from headgate.cli.bundle.output import content, forget
from headgate.cli.bundle.showing import Allowance, told
from headgate.cli.bundle.walking import Found, count, walk
from headgate.cli.printing import counted, end_with_no, size_of
from headgate.cli.terminal import Advance, harmless, progress
from headgate.errors import ConfigurationError, ResponseError

if TYPE_CHECKING:
    from headgate.bundle.model import Location
    from headgate.bundle.reading.mi_decoding import DecodedResponse
    from headgate.bundle.reading.reader import Bundle

__all__ = ["extract"]

_FILES = "files"
_EXCHANGES = "exchanges.json"


@click.command(short_help="Every payload as a file, and the rest as JSON.")
@reads
@click.option("-o", "--output", "out", metavar="DIR", required=True, help="Made if it is not there.")
def extract(*, source: Reading, out: str) -> None:
    """Extract every payload to a file below DIR/files, and write the rest to DIR/exchanges.json.

    The file is an array with url, variant_key, status, headers and file (relative to DIR) of each response. A response
    that is refused does not keep the others from being extracted: its entry says why, and the exit code is 1. Signing
    stores payloads as mi-sha256-03: files and headers are those from before, checked against the digest.

    \b
    headgate bundle extract site.wbn -o site
    jq -r '.[] | [.status, .url, .file] | @tsv' site/exchanges.json
    """
    from headgate.bundle.reading.overlap import reject_overlapping_responses

    with source.opened() as bundle:
        reject_overlapping_responses(bundle)
        with _made(Path(out)) as directory, progress("extracting", count(bundle)) as advance:
            shelf = _Shelf(bundle, directory)
            _fill(shelf, walk(bundle), Allowance(bundle.size), advance)
    refused = f", {counted(shelf.refused, 'response')} refused: see {_EXCHANGES}" if shelf.refused else ""
    click.echo(f"{harmless(out)}: {counted(shelf.files, 'file')}, {size_of(shelf.size)}{refused}", err=True)
    if shelf.refused:
        end_with_no()


def _fill(shelf: "_Shelf", responses: Iterable[Found], allowance: Allowance, advance: Advance) -> None:
    with shelf.exchanges.open("x", encoding="utf-8") as listed:
        before = "[\n"
        for found in responses:
            listed.write(before + allowance.take(json.dumps(shelf.put(found), ensure_ascii=False)))
            before = ",\n"
            advance(1)
        listed.write("\n]\n" if before == ",\n" else "[]\n")


class _Shelf:
    """Takes responses, and writes each stored payload once."""

    def __init__(self, bundle: "Bundle", directory: Path) -> None:
        self.files = self.size = self.refused = 0
        self._bundle = bundle
        self.exchanges = directory / _EXCHANGES
        self._directory = directory
        self._names = Names()
        self._known: dict[Location, dict[str, Any]] = {}
        self._parents: set[Path] = set()

    def put(self, found: Found) -> dict[str, Any]:
        """Write a response's payload, unless it is there; give the entry of the response."""
        kept = self._known.get(found.location)
        if kept is None:
            kept = self._known[found.location] = self._kept(found)
        self.refused += "error" in kept
        return {"url": found.url, "variant_key": found.variant_key, **kept}

    def _kept(self, found: Found) -> dict[str, Any]:
        """Write a response's payload; give what its entries say."""
        from headgate.bundle.reading.mi_decoding import decode_response

        try:
            if isinstance(found.response, ResponseError):
                raise found.response
            response = decode_response(self._bundle, found.location, found.response, used=forget)
        except ResponseError as error:
            return told(error)
        return {"status": response.status, "headers": response.decoded.headers, "file": self._write(found, response)}

    def _write(self, found: Found, response: "DecodedResponse") -> str:
        self.size += response.length
        name = f"{_FILES}/{self._names.name(found.url, found.variant_key)}"
        path = self._directory / name
        if path.parent not in self._parents:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._parents.add(path.parent)
        with path.open("xb") as target:
            for piece in content(response):
                target.write(piece)
        self.files += 1
        return name


@contextmanager
def _made(directory: Path) -> Iterator[Path]:
    """Make the directory and its place for files; take away what was made if what follows fails."""
    files, exchanges = directory / _FILES, directory / _EXCHANGES
    try:
        made = not directory.is_dir()
        directory.mkdir(parents=True, exist_ok=True)
        for path in (files, exchanges):
            if os.path.lexists(path):
                raise ConfigurationError(f"{path} is there already; remove it, or name another directory")
        files.mkdir()
    except OSError as error:
        raise ConfigurationError(f"{directory}: {error.strerror or error}; name a directory that can be made") from None
    try:
        yield directory
    except BaseException:
        exchanges.unlink(missing_ok=True)
        shutil.rmtree(directory if made else files, ignore_errors=True)
        raise
