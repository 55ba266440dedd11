"""`headgate bundle extract`: every payload to a file below DIR/files, and everything else to DIR/exchanges.json.

DIR/files is a new directory, so no symbolic link in it leads out of it. A file's name consists of the URL's host and
path in ASCII; bytes with a meaning in the path names of any system are percent-encoded. Names that are equal on a
system that ignores case get a number, and so does a file where another URL needs a directory. A name that is too long
is cut, and ends in a digest.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.output import OutputLimit, error_fields, iterate_responses
from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.output import Advance, exit_with_failure, format_count, format_size, printable, progress
from headgate.errors import ResponseError, explaining, fail_if

if TYPE_CHECKING:
    from headgate.bundle.model import Location
    from headgate.bundle.reader import Bundle
    from headgate.cli.bundle.output import Found


_UNSAFE = re.compile(r"[^A-Za-z0-9!$&'()+,\-.=@_~%]")
_NOT_WORD = re.compile(r"[^A-Za-z0-9\-]")
# Device names on Windows, with any extension.
_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(?:\.|$)")
_MAX_NAME = 160
"""Of the 255 characters that systems allow, to leave room for a number and a digest."""
_MAX_PATH = 800
_INDEX = "index.html"

_FILES = "files"
_EXCHANGES = "exchanges.json"


@click.command(short_help="Extract every payload to a file, the rest to JSON.")
@with_source
@click.option("-o", "--output", "out", metavar="DIR", required=True, help="Output directory; created if missing.")
def extract(*, source: BundleSource, out: str) -> None:
    """Extract every payload to a file below DIR/files, and write the rest to DIR/exchanges.json.

    exchanges.json is an array with url, variant_key, status, headers and file (relative to DIR) of each response. The
    entry of a malformed response has the error, and the exit code is 1; the others are extracted. Signed payloads are
    checked against their digests and decoded from mi-sha256-03.

    \b
    headgate bundle extract site.wbn -o site
    jq -r '.[] | [.status, .url, .file] | @tsv' site/exchanges.json
    """
    from headgate.bundle.reader import reject_overlapping_responses

    with source.opened() as bundle:
        reject_overlapping_responses(bundle)
        count = sum(1 for _ in bundle.metadata.locations())
        with _created(Path(out)) as directory, progress("extracting", count) as advance:
            extraction = _Extraction(bundle, directory)
            _extract_all(extraction, iterate_responses(bundle), OutputLimit(bundle.size), advance)
    refused = (
        f", {format_count(extraction.refused, 'response')} refused: see {_EXCHANGES}" if extraction.refused else ""
    )
    click.echo(
        f"{printable(out)}: {format_count(extraction.files, 'file')}, {format_size(extraction.size)}{refused}", err=True
    )
    if extraction.refused:
        exit_with_failure()


def _extract_all(extraction: "_Extraction", responses: "Iterable[Found]", limit: OutputLimit, advance: Advance) -> None:
    with extraction.exchanges.open("x", encoding="utf-8") as listed:
        before = "[\n"
        for found in responses:
            listed.write(before + limit.take(json.dumps(extraction.put(found), ensure_ascii=False)))
            before = ",\n"
            advance(1)
        listed.write("\n]\n" if before == ",\n" else "[]\n")


class _Extraction:
    """Writes each stored payload once."""

    def __init__(self, bundle: "Bundle", directory: Path) -> None:
        self.files = self.size = self.refused = 0
        self._bundle = bundle
        self.exchanges = directory / _EXCHANGES
        self._directory = directory
        self._names = FileNames()
        self._known: dict[Location, dict[str, Any]] = {}

    def put(self, found: "Found") -> dict[str, Any]:
        """Write a payload, unless it was written; return the entry of the response."""
        url, variant_key, location, _ = found
        entry = self._known.get(location)
        if entry is None:
            entry = self._known[location] = self._extract(found)
        self.refused += "error" in entry
        return {"url": url, "variant_key": variant_key, **entry}

    def _extract(self, found: "Found") -> dict[str, Any]:
        """Write a payload; return what the entries of its URLs have in common."""
        url, variant_key, location, head = found
        try:
            if isinstance(head, ResponseError):
                raise head
            response = self._bundle.decode(location)
        except ResponseError as error:
            return error_fields(error)
        name = f"{_FILES}/{self._names.name(url, variant_key)}"
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as target:
            for piece in response.pieces(0, response.length):
                target.write(piece)
        self.files += 1
        self.size += response.length
        return {"status": response.status, "headers": response.decoded.headers, "file": name}


@contextmanager
def _created(directory: Path) -> Iterator[Path]:
    """Create the directory, and one for files in it; remove what was created if the block fails."""
    files, exchanges = directory / _FILES, directory / _EXCHANGES
    with explaining(str(directory), "name a directory that can be created"):
        is_new = not directory.is_dir()
        directory.mkdir(parents=True, exist_ok=True)
        for path in (files, exchanges):
            fail_if(os.path.lexists(path), f"{path} exists; remove it, or name another directory")
        files.mkdir()
    try:
        yield directory
    except BaseException:
        exchanges.unlink(missing_ok=True)
        shutil.rmtree(directory if is_new else files, ignore_errors=True)
        raise


class FileNames:
    """Gives every payload a unique name below one directory, which holds nothing else."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        """Paths of files and directories, all in lower case."""
        self._directories: dict[tuple[str, str], str] = {}
        """From a directory and a preferred name in it to the directory used."""
        self._next: dict[str, int] = {}

    def name(self, url: str, variant_key: str | None = None) -> str:
        """Return a relative path with / between its names; never the same twice."""
        *directories, last = _preferred(url)
        if variant_key is not None:
            last = _shortened(_with_mark(last, _NOT_WORD.sub("_", variant_key)), f"{last} {variant_key}")
        at = ""
        for name in directories:
            if (at, name) not in self._directories:
                self._directories[at, name] = f"{self._take(at, name)}/"
            at = self._directories[at, name]
        return self._take(at, last)

    def _take(self, at: str, name: str) -> str:
        """Take the first free name of name, name~2, name~3 … in the directory `at`."""
        path = at + name
        base = path.lower()
        while path.lower() in self._taken:
            number = self._next.get(base, 2)
            self._next[base] = number + 1
            path = at + _with_mark(name, str(number))
        self._taken.add(path.lower())
        return path


def _preferred(url: str) -> list[str]:
    """Return the names of a URL's host, directories and file; `relative` is the host of a relative URL."""
    from headgate.http.url import parse_url, resolve

    if parse_url(url) is None:
        url = resolve(url, "https://relative/") or url
    scheme, _, rest = url.partition(":")
    rest, _, query = rest.partition("?")
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
    else:
        host, path = "", rest.removeprefix("/")
    *directories, last = path.split("/")
    last = last or _INDEX
    names = [_safe(name) for name in (host or scheme, *directories, f"{last}?{query}" if query else last)]
    if sum(map(len, names)) + len(names) > _MAX_PATH:
        return [names[0], f"~{_digest(url)}"]
    return names


def _safe(name: str) -> str:
    """Encode a name so that every system accepts it as one name."""
    safe = _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")), name)
    if safe.endswith("."):  # . and .. are directories, and Windows drops trailing dots
        safe = safe.rstrip(".") + "%2E" * (len(safe) - len(safe.rstrip(".")))
    if _DEVICE.match(safe):
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    return _shortened(safe or "_", name)


def _with_mark(name: str, mark: str) -> str:
    """Insert a mark into a name, before its extensions."""
    stem, dot, extensions = name.partition(".")
    return f"{stem}~{mark}{dot}{extensions}"


def _shortened(name: str, whole: str) -> str:
    """Cut a name that is too long, and append a digest of the whole."""
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}~{_digest(whole)}"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
