"""Which file a URL's payload is extracted to: readable names that no URL can turn into another place or another file.

A name is made of the URL's host and path, in ASCII, with every byte that some system would take for more than a name
percent-encoded. Names that would meet, also where a system does not tell upper from lower case, and a file where
another URL needs a directory, are told apart by a number. What is too long ends in a digest.
"""

import re
from hashlib import sha256

__all__ = ["Names"]

_UNSAFE = re.compile(r"[^A-Za-z0-9!$&'()+,\-.=@_~%]")
_NO_WORD = re.compile(r"[^A-Za-z0-9\-]")
# Windows takes these for devices whatever follows the first dot.
_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(?:\.|$)")
_LONGEST_NAME = 160
"""Of the 255 that systems allow: what tells names apart is added to it."""
_LONGEST_PATH = 800
_INDEX = "index.html"


class Names:
    """Gives every payload a name of its own, below one directory that holds nothing else."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        """Paths of files and directories, all in lower case."""
        self._directories: dict[tuple[str, str], str] = {}
        """From a directory and a name wished for in it to the directory that is."""
        self._next: dict[str, int] = {}

    def name(self, url: str, variant_key: str | None = None) -> str:
        """Give a relative path with / between its names, and never the same twice."""
        *directories, last = _wished(url)
        if variant_key is not None:
            last = _shortened(_beside(last, _NO_WORD.sub("_", variant_key)), f"{last} {variant_key}")
        at = ""
        for wish in directories:
            if (at, wish) not in self._directories:
                self._directories[at, wish] = f"{self._take(at, wish)}/"
            at = self._directories[at, wish]
        return self._take(at, last)

    def _take(self, at: str, wish: str) -> str:
        """Take the first that is free of wish, wish~2, wish~3 … in the directory `at`."""
        path = at + wish
        base = path.lower()
        while path.lower() in self._taken:
            number = self._next.get(base, 2)
            self._next[base] = number + 1
            path = at + _beside(wish, str(number))
        self._taken.add(path.lower())
        return path


def _wished(url: str) -> list[str]:
    """Give the names that a URL asks for: its host, its directories, its file."""
    scheme, _, rest = url.partition(":")
    rest, _, query = rest.partition("?")
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
    else:
        host, path = "", rest.removeprefix("/")
    *directories, last = path.split("/")
    last = last or _INDEX
    names = [_safe(name) for name in (host or scheme, *directories, f"{last}?{query}" if query else last)]
    if sum(map(len, names)) + len(names) > _LONGEST_PATH:
        return [names[0], f"~{_digest(url)}"]
    return names


def _safe(name: str) -> str:
    """Write a name so that every system takes it for one name, and for nothing else."""
    safe = _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")), name)
    if safe.endswith("."):  # . and .. are places, and Windows drops the dots at the end of a name
        safe = safe.rstrip(".") + "%2E" * (len(safe) - len(safe.rstrip(".")))
    if _DEVICE.match(safe):
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    return _shortened(safe or "_", name)


def _beside(name: str, mark: str) -> str:
    """Put a mark into a name, before its extensions."""
    stem, dot, extensions = name.partition(".")
    return f"{stem}~{mark}{dot}{extensions}"


def _shortened(name: str, whole: str) -> str:
    """Cut a name that is too long, and let it end in a digest of the whole."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}~{_digest(whole)}"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
