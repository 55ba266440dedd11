"""The map of HAProxy that has the holds: its entries, and the commands of the runtime socket that change it.

This module opens no socket. A key is an identifier in percent-encoding, as HAProxy's converter `url_enc` writes it:
only letters, digits and the characters ``-._~%``. So no identifier can end a command or an argument, whatever its bytes
are. A value is the end of the hold in milliseconds since 1970, and HAProxy compares it with its own clock.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from headgate.errors import ConfigurationError, WireError

MAX_ENTRIES: Final = 100_000
"""Entries of the map; HAProxy needs about 200 bytes for each."""
MAX_COMMAND_SIZE: Final = 8_000
"""Bytes sent to HAProxy at once; its buffer has 16 KiB unless the operator has made it smaller."""

_NAME: Final = re.compile(r"[A-Za-z0-9._/+=:@~-]+")
_VERSION: Final = re.compile(r"New version created: ([0-9]+)")
_ENTRY: Final = re.compile(r"^0x[0-9a-f]+ (\S+) ([0-9]{1,15})$", re.MULTILINE)
_LATEST: Final = 4_000_000_000_000
"""Milliseconds since 1970; a hold without an end is written as one until then, the year 2096."""


def check_map_name(name: str) -> None:
    """Raise `ConfigurationError` for a text that is not the name of a map, or could be read as something else."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"invalid map {name!r}; expected the path of its file as HAProxy's configuration names it, of letters, "
            "digits and the characters ._/+=:@~-"
        )


def encode_key(identifier: bytes) -> str:
    """Return the key of an identifier."""
    return quote_from_bytes(identifier, safe="")


def decode_key(key: bytes) -> bytes:
    """Return the identifier of a key."""
    return unquote_to_bytes(key) if b"%" in key else key


class MapEntries:
    """What a map has: the end of each hold, in milliseconds since 1970. At most `MAX_ENTRIES`."""

    def __init__(self, ends: Mapping[bytes, int] | None = None) -> None:
        self.ends: dict[bytes, int] = dict(ends or {})
        """The end of each hold by identifier; also of holds that have ended, until they are removed."""
        # One item for each entry; one that comes too early is put back with the end of the entry.
        self._order = [(end, identifier) for identifier, end in self.ends.items()]
        heapify(self._order)

    def put(self, identifier: bytes, end: int) -> None:
        """Add an entry, or replace its end by a later one."""
        if identifier not in self.ends:
            heappush(self._order, (end, identifier))
        self.ends[identifier] = end

    def remove_ended(self, now: int, most: int) -> list[bytes]:
        """Remove and return the entries that have ended, at most `most` of them."""
        ended: list[bytes] = []
        while self._order and self._order[0][0] <= now and len(ended) < most:
            identifier = heappop(self._order)[1]
            end = self.ends[identifier]
            if end <= now:
                del self.ends[identifier]
                ended.append(identifier)
            else:
                heappush(self._order, (end, identifier))
        return ended


class MapState(NamedTuple):
    """What HAProxy says of a map; its version is 0 after a start, and a new one when all entries are replaced."""

    version: int
    entries: int


class MapCommands:
    """Writes the commands that change one map, and reads their answers."""

    def __init__(self, name: str) -> None:
        check_map_name(name)
        self._name = name
        self._state = re.compile(
            rf"^[0-9]+ \({re.escape(name)}\) .*curr_ver=([0-9]+) next_ver=[0-9]+ entry_cnt=([0-9]+)", re.MULTILINE
        )

    def state(self) -> str:
        """Return the command that asks for the state of all maps."""
        return "show map\n"

    def read_state(self, answer: str) -> MapState:
        """Read the answer to `state`. Raises `WireError` if HAProxy does not have the map."""
        found = self._state.search(answer)
        if found is None:
            raise self._unknown()
        return MapState(int(found[1]), int(found[2]))

    def entries(self) -> str:
        """Return the command that asks for all entries of the map."""
        return f"show map {self._name}\n"

    def read_entries(self, answer: str) -> Iterator[tuple[bytes, int]]:
        """Yield the identifiers and ends in the answer to `entries`; other lines are ignored."""
        for found in _ENTRY.finditer(answer):
            yield unquote_to_bytes(found[1]), int(found[2])

    def prepare(self) -> str:
        """Return the command that begins a new version of the map."""
        return f"prepare map {self._name}\n"

    def read_version(self, answer: str) -> int:
        """Read the answer to `prepare`. Raises `WireError` for an error."""
        found = _VERSION.search(answer)
        if "Unknown map" in answer:
            raise self._unknown()
        if found is None:
            raise WireError(f"HAProxy cannot replace the map {self._name!r}: {answer.strip()[:200]!r}")
        return int(found[1])

    def _unknown(self) -> WireError:
        return WireError(f"HAProxy does not have the map {self._name!r}; use it as --print-conf shows")

    def commit(self, version: int) -> str:
        """Return the command that puts a version in the place of the one before."""
        return f"commit map @{version} {self._name}\n"

    def add(self, entries: Iterable[tuple[bytes, int]], version: int | None = None) -> Iterator[str]:
        """Yield the commands that add entries, to a version that was prepared or to the one in force."""
        place = self._name if version is None else f"@{version} {self._name}"
        lines = (f"{encode_key(identifier)} {min(end, _LATEST)}" for identifier, end in entries)
        for group in _grouped(lines):
            yield f"add map {place} <<\n" + "\n".join(group) + "\n\n"

    def change(self, entries: Iterable[tuple[bytes, int]], removed: Iterable[bytes]) -> Iterator[str]:
        """Yield the commands that change and remove entries."""
        commands = [f"set map {self._name} {encode_key(name)} {min(end, _LATEST)}" for name, end in entries]
        commands += [f"del map {self._name} {encode_key(name)}" for name in removed]
        for group in _grouped(commands):
            yield ";".join(group) + "\n"


def check_done(answer: str) -> None:
    """Raise `WireError` unless an answer says that all commands have been executed: then it has only line feeds."""
    if answer.strip():
        raise WireError(f"HAProxy did not change the map: {answer.strip()[:200]!r}")


def _grouped(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield lists of lines of at most `MAX_COMMAND_SIZE` bytes in total."""
    group: list[str] = []
    size = 0
    for line in lines:
        if group and size + len(line) + 1 > MAX_COMMAND_SIZE:
            yield group
            group, size = [], 0
        group.append(line)
        size += len(line) + 1
    if group:
        yield group
