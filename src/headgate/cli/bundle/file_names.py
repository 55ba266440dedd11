"""File names for the payloads of URLs: readable, unique, and always below the target directory.

A name consists of the URL's host and path in ASCII; bytes with a meaning in the path names of any system are
percent-encoded. Names that are equal on a system that ignores case get a number, and so does a file where another URL
needs a directory. A name that is too long is cut, and ends in a digest.
"""

import re
from hashlib import sha256

_UNSAFE = re.compile(r"[^A-Za-z0-9!$&'()+,\-.=@_~%]")
_NOT_WORD = re.compile(r"[^A-Za-z0-9\-]")
# Device names on Windows, with any extension.
_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(?:\.|$)")
_MAX_NAME = 160
"""Of the 255 characters that systems allow, to leave room for a number and a digest."""
_MAX_PATH = 800
_INDEX = "index.html"


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
    """Return the names of a URL's host, directories and file."""
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
