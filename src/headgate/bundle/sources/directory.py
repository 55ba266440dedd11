"""A directory as a site: every file under its root, each at the URL where a web server would have it.

Media types follow from file name extensions. They are pinned, so that a bundle's bytes do not depend on the machine's
tables.
"""

import mimetypes
import os
import stat
from codecs import getincrementaldecoder
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes

from headgate.bundle.files.payloads import FilePayload, identity_of
from headgate.bundle.model import Exchange
from headgate.bundle.sources.selection import MessageCallback, SkipReport, essence, ignore_message
from headgate.errors import ConfigurationError, explaining, fail_if, reason_of
from headgate.http.url import has_credentials, parse_url

INDEX: Final = "index.html"
MANIFESTS: Final = ("manifest.webmanifest", "manifest.json")
WELL_KNOWN: Final = ".well-known"
"""The one public name with a leading dot (RFC 8615)."""
MAX_FILES: Final = 1_000_000
"""Maximum number of files: symbolic links can multiply them without limit."""

_MOVED: Final = {"content-type": "text/plain", "location": "./"}
_SAFE: Final = "!$&'()*+,-.:;=@[]^_|~"
"""Characters that the WHATWG's parser leaves in a segment, besides letters and digits: links have them as they are."""
_READABLE: Final = "every file must be readable"
_EARLY: Final = frozenset({"text/html", "application/xhtml+xml", "text/css", "text/javascript"})


class _Entry(NamedTuple):
    name: str
    path: Path
    """The path with all symbolic links resolved."""
    status: os.stat_result
    shown: str
    """The path for messages, with a link as it is."""


class _Folder(NamedTuple):
    url: str
    entries: Iterator[_Entry]
    ancestors: frozenset[tuple[int, int]]
    """Device and inode of this directory, and of those it was reached through."""


def directory(
    root: Path,
    base_url: str,
    *,
    primary_url: str | None = None,
    tell: MessageCallback = ignore_message,
    max_files: int = MAX_FILES,
) -> Iterator[Exchange]:
    """Yield an exchange for each file under `root`, whose URL is `base_url`; payloads are files.

    An `index.html` has its directory's URL, and its own URL redirects there (301), since pages link to both. Names are
    encoded byte by byte, so every file has a unique URL. The primary URL, by default `base_url`, comes first, then
    pages, styles and scripts, then the rest, each by name, directory by directory.

    Left out, with a message: names with a leading dot, except `.well-known`; symbolic links that are broken, that lead
    out of the root or to a directory they are in; what is neither file nor directory. Raises `ConfigurationError` at
    once for an invalid root or URL; later that and `HeadgateError` for what cannot be read, or is replaced meanwhile.
    """
    base = check_base_url(base_url)
    return _Walk(_real(root), base).exchanges(tell, root, max_files, primary_url or base)


def find_manifest(root: Path, base_url: str) -> str | None:
    """Return the URL of the web app manifest at the root, `manifest.webmanifest` or `manifest.json`; or None."""
    real = _real(root)
    for name in MANIFESTS:
        path = Path(os.path.realpath(real / name))
        if path.is_relative_to(real) and path.is_file():
            return check_base_url(base_url) + name
    return None


def check_base_url(text: str) -> str:
    """Return the base URL in normal form; raises `ConfigurationError` for one without a directory path."""
    url = parse_url(text)
    if url is None or "://" not in url:
        raise ConfigurationError(f"invalid base URL {text!r}; expected an absolute URL such as https://example.com/")
    fail_if(
        has_credentials(url) or "?" in url or "#" in url, f"the base URL {text!r} must not have user, query or fragment"
    )
    fail_if(not url.endswith("/"), f"the base URL {text!r} must end in a slash, as in {url}/")
    return url


class _Walk:
    """One pass over a tree."""

    def __init__(self, root: Path, base_url: str) -> None:
        self._root = root
        self._base_url = base_url
        self._left_out = SkipReport()
        self._linked = 0

    def exchanges(self, tell: MessageCallback, where: Path, max_files: int, primary_url: str) -> Iterator[Exchange]:
        count, found = 0, list[Exchange]()
        for url, entry in self._files():
            count += 1
            fail_if(count > max_files, f"{where} has more than {max_files} files; a file counts for each link to it")
            payload = FilePayload(os.fspath(entry.path), entry.status.st_size, identity_of(entry.status))
            headers = {"content-type": _content_type(entry.name, payload)}
            if entry.name == INDEX:
                found.append(Exchange(url, 200, headers, payload))
                found.append(Exchange(url + INDEX, 301, _MOVED, b""))
            else:
                found.append(Exchange(url + _segment(entry.name), 200, headers, payload))
        self._left_out.tell(tell, where=str(where))
        if self._linked:
            tell(f"{where}: links to directories that were followed, so that files are stored again: {self._linked}")
        if not count:
            tell(f"{where}: found no file to bundle")
        # A client that gets the beginning can show the page.
        yield from sorted(
            found, key=lambda one: (one.url != primary_url, essence(one.headers["content-type"]) not in _EARLY)
        )

    def _files(self) -> Iterator[tuple[str, _Entry]]:
        """Yield the regular files, each with the URL of its directory."""
        # Not recursive: directories can be deeper than the call stack.
        stack = [self._opened(self._base_url, self._root, frozenset())]
        while stack:
            folder = stack[-1]
            entry = next(folder.entries, None)
            if entry is None:
                stack.pop()
            elif stat.S_ISREG(entry.status.st_mode):
                yield folder.url, entry
            elif not stat.S_ISDIR(entry.status.st_mode):
                # Not opened: opening a FIFO waits for its writer.
                self._left_out.add("neither a file nor a directory", entry.shown)
            elif identity_of(entry.status) in folder.ancestors:
                self._left_out.add("a symbolic link to a directory that it is in", entry.shown)
            else:
                self._linked += os.fspath(entry.path) != entry.shown
                stack.append(self._opened(f"{folder.url}{_segment(entry.name)}/", entry.path, folder.ancestors))

    def _opened(self, url: str, path: Path, ancestors: frozenset[tuple[int, int]]) -> _Folder:
        with explaining(f"cannot read {path}", _READABLE):
            names = sorted((found.name for found in path.iterdir()), key=os.fsencode)
            itself = identity_of(path.stat())
        return _Folder(url, self._entries(path, names), ancestors | {itself})

    def _entries(self, folder: Path, names: list[str]) -> Iterator[_Entry]:
        for name in names:
            path = folder / name
            if name.startswith(".") and name != WELL_KNOWN:
                self._left_out.add("hidden (leading dot)", str(path))
                continue
            try:
                if path.is_symlink():
                    path = Path(os.path.realpath(path, strict=True))
                    if not path.is_relative_to(self._root):
                        self._left_out.add("a symbolic link that leads out of the directory", str(folder / name))
                        continue
                yield _Entry(name, path, path.lstat(), os.fspath(folder / name))
            except OSError as error:
                if not (folder / name).is_symlink():
                    raise ConfigurationError(f"cannot read {path}: {reason_of(error)}; {_READABLE}") from None
                self._left_out.add("a broken symbolic link", str(folder / name))


def _content_type(name: str, payload: FilePayload) -> str:
    """Return the content type of a file, with a charset for text that is valid UTF-8.

    Other text gets none: the header would override the charset that a page declares itself.
    """
    found = media_type(name)
    if not found.startswith("text/"):
        next(iter(payload), b"")  # it can be read
        return found
    decode = getincrementaldecoder("utf-8")().decode
    try:
        for chunk in payload:
            decode(chunk)
        decode(b"", final=True)
    except UnicodeDecodeError:
        return found
    return f"{found}; charset=utf-8"


def _segment(name: str) -> str:
    """Encode a file's name, of any bytes, as one segment of a URL's path."""
    return quote_from_bytes(os.fsencode(name), safe=_SAFE)


def _real(root: Path) -> Path:
    with explaining(f"cannot read {root}", _READABLE):
        real = Path(os.path.realpath(root, strict=True))
    fail_if(not real.is_dir(), f"{root} is not a directory; expected the one with the files of the site")
    return real


# fmt: off
PINNED = {
    ".html": "text/html", ".htm": "text/html", ".xhtml": "application/xhtml+xml", ".xht": "application/xhtml+xml",
    ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript", ".cjs": "text/javascript",
    ".wasm": "application/wasm", ".json": "application/json", ".map": "application/json",
    ".jsonld": "application/ld+json", ".geojson": "application/geo+json", ".topojson": "application/json",
    ".webmanifest": "application/manifest+json", ".importmap": "application/importmap+json",
    ".appcache": "text/cache-manifest", ".htc": "text/x-component", ".glb": "model/gltf-binary",
    ".gltf": "model/gltf+json", ".wbn": "application/webbundle", ".xml": "application/xml", ".xsl": "application/xml",
    ".xslt": "application/xslt+xml", ".rss": "application/rss+xml", ".atom": "application/atom+xml",
    ".txt": "text/plain", ".text": "text/plain", ".log": "text/plain", ".md": "text/markdown",
    ".markdown": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values", ".ics": "text/calendar",
    ".vcf": "text/vcard", ".vtt": "text/vtt", ".srt": "application/x-subrip", ".yaml": "application/yaml",
    ".yml": "application/yaml", ".toml": "application/toml", ".svg": "image/svg+xml", ".png": "image/png",
    ".apng": "image/apng", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".jfif": "image/jpeg", ".gif": "image/gif",
    ".webp": "image/webp", ".avif": "image/avif", ".jxl": "image/jxl", ".heic": "image/heic", ".heif": "image/heif",
    ".bmp": "image/bmp", ".ico": "image/vnd.microsoft.icon", ".cur": "image/vnd.microsoft.icon",
    ".tif": "image/tiff", ".tiff": "image/tiff", ".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf",
    ".otf": "font/otf", ".ttc": "font/collection", ".eot": "application/vnd.ms-fontobject", ".mp4": "video/mp4",
    ".m4v": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg", ".mov": "video/quicktime",
    ".mpeg": "video/mpeg", ".mpg": "video/mpeg", ".avi": "video/x-msvideo", ".mkv": "video/matroska",
    ".ts": "video/mp2t", ".m2ts": "video/mp2t", ".m3u8": "application/vnd.apple.mpegurl",
    ".mpd": "application/dash+xml", ".mp3": "audio/mpeg", ".m4a": "audio/mp4", ".aac": "audio/aac",
    ".oga": "audio/ogg", ".ogg": "audio/ogg", ".opus": "audio/ogg", ".flac": "audio/flac", ".wav": "audio/wav",
    ".weba": "audio/webm", ".mid": "audio/midi", ".midi": "audio/midi", ".pdf": "application/pdf",
    ".epub": "application/epub+zip", ".zip": "application/zip", ".gz": "application/gzip", ".tgz": "application/gzip",
    ".bz2": "application/x-bzip2", ".xz": "application/x-xz", ".zst": "application/zstd",
    ".br": "application/octet-stream", ".tar": "application/x-tar", ".7z": "application/x-7z-compressed",
    ".exe": "application/octet-stream", ".bin": "application/octet-stream", ".swf": "application/x-shockwave-flash",
}
# fmt: on
"""From extension to media type, for files of the web."""

_OTHERS = mimetypes.MimeTypes()
"""Python's own table, without the machine's files that `mimetypes.guess_type` reads."""


def media_type(name: str) -> str:
    """Return the media type for a file of this name, `application/octet-stream` for an unknown extension.

    The last extension counts: `page.html.gz` is an archive, without a content coding.
    """
    _, dot, extension = name.rpartition(".")
    suffix = dot + extension.lower()
    return PINNED.get(suffix) or _OTHERS.types_map[True].get(suffix, "application/octet-stream")
