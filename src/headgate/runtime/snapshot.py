"""Saves the histories of a master to a file, and restores them at its start (docs/reference/wire.md, Snapshots).

A snapshot is made in steps: each copies a limited number of histories in the event loop, and a thread writes them.
"""

import asyncio
import fcntl
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec

from headgate.errors import explaining, fail_if, reason_of
from headgate.limit import Domain, Master
from headgate.runtime.lifecycle import cancel_tasks

_LINE: Final = b"headgate snapshot 2 " + sys.byteorder.encode() + b"\n"
"""The version, and the byte order of the doubles in histories."""
_SIZE: Final = 4
"""Bytes of the length before each value."""
_MAX_VALUE: Final = 64 * 1024 * 1024
"""Maximum bytes of a value; a larger length is an error in the file. A million timestamps take 9 MB."""

_Key = tuple[bytes, str, tuple[str, ...]]
"""The name, the algorithm and the rules of a domain: what gives its histories a meaning."""
_part: Final = msgspec.msgpack.Decoder(tuple[_Key, list[bytes]])
"""Decodes a value: a domain, and identifiers and histories alternately (`Master.export`)."""
_end: Final = msgspec.msgpack.Decoder(tuple[float, float, float, int])
"""Decodes the last value: when the snapshot was complete, `behind` and `latest` of the clock, and a checksum."""


class SnapshotCounters(msgspec.Struct):
    """What has become of the snapshots since the start."""

    writes: Annotated[dict[str, int], "outcome"] = msgspec.field(default_factory=lambda: {"saved": 0, "failed": 0})
    """Snapshots by outcome: saved, or failed."""


class Snapshots:
    """Saves the histories of a master to `path` every `interval` seconds and at the end; with an empty path, never.

    `log` is called with lines for the operator. Raises `ConfigurationError` as `snapshot_path` does.
    """

    def __init__(self, path: str, interval: float, log: Callable[[str], None], *, key: str = "master.snapshot") -> None:
        self.counters = SnapshotCounters()
        """The counters since the start."""
        self.saved_at = 0.0
        """Time of the last snapshot, also of the one that was restored; seconds since 1970, 0 for none."""
        self._path = snapshot_path(path, key) if path else None
        self._key = key
        self._interval = interval
        self._log = log
        self._saving: asyncio.Task[None] | None = None
        self._master: Callable[[], Master]
        self._failure = ""

    async def restore(self, make: Callable[[], Master]) -> Master:
        """Return a master that `make` makes, with the histories of the file; without them if the file is invalid."""
        try:
            if self._path is not None and self._path.exists():
                return await asyncio.to_thread(self._fill, self._path, make(), time.time())
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self._log(f"warning: snapshot {self._path} ignored: {reason_of(error)}")
        return make()

    def start(self, master: Callable[[], Master]) -> None:
        """Save the histories of the master that `master` returns, from now on."""
        if self._path is not None:
            self._master = master
            self._saving = asyncio.get_running_loop().create_task(self._run(self._path))

    async def close(self) -> None:
        """Save the histories a last time, if they have been saved so far; a snapshot under way is given up."""
        if self._path is not None and self._saving is not None:
            await cancel_tasks([self._saving])
            await self._save(self._path, self._master())

    async def save(self) -> None:
        """Save the histories now, as far as they are saved at all."""
        if self._saving is not None:
            await self.close()
            self.start(self._master)

    def stop(self) -> None:
        """Save nothing more, not at the end either."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None

    async def _run(self, path: Path) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._save(path, self._master())

    async def _save(self, path: Path, master: Master) -> None:
        """Save a snapshot. The first of several errors is logged; the previous file stays."""
        new, failure = path.with_name(f".{path.name}.new"), ""
        try:
            # Only its owner may read it: identifiers may be secrets.
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                await _write(file, master)
                new.replace(path)
            self.counters.writes["saved"] += 1
            self.saved_at = time.time()
        except OSError as error:
            self.counters.writes["failed"] += 1
            failure = reason_of(error)
            with suppress(OSError):
                new.unlink(missing_ok=True)
        if failure and not self._failure:
            self._log(f"warning: snapshot {path}: {failure}; the previous one stays ({self._key} names the file)")
        if self._failure and not failure:
            self._log(f"snapshot {path}: saved again")
        self._failure = failure

    def _fill(self, path: Path, master: Master, now: float) -> Master:
        """Restore the histories of the file; raises `OSError`, `ValueError` or `DecodeError` for an invalid one.

        Instants continue from the latest one: if this machine's clock is behind that of the snapshot, nothing lasts
        longer than it would have then.
        """
        with path.open("rb") as file:
            values = list(_values(file))
        saved, behind, latest, checksum = _end.decode(b"".join(values[-1:]))
        if checksum != zlib.crc32(b"".join(values[:-1])):
            raise ValueError("wrong checksum")
        master.clock.resume(behind, latest)
        domains, restored = {_key(domain): name for name, domain in master.domains.items()}, 0
        for key, histories in map(_part.decode, values[:-1]):
            if key in domains:
                restored += master.restore(domains[key], histories, now)
            elif histories:
                self._log(f"warning: snapshot {path}: domain {key[0]!r} left out: not configured with these rules")
        self.saved_at = saved
        self._log(f"snapshot {path}: {restored} histories restored, saved {max(0.0, now - saved):.0f} s ago")
        return master


def snapshot_path(text: str, key: str = "master.snapshot") -> Path:
    """Return the path of a snapshot, the value of `key`; of a symbolic link, of its target: the link stays.

    Raises `ConfigurationError` unless it is, or can become, a regular file: a pipe would block the master.
    """
    with explaining(f"{key}: {text!r} cannot be used", "name another file"):
        path = Path(os.path.realpath(text))
        is_file = path.is_file() or (path.parent.is_dir() and not path.exists())
    fail_if(
        not is_file, f"{key}: invalid file {text!r}; expected a regular file, or a new one in a directory that exists"
    )
    return path


async def _write(file: BinaryIO, master: Master) -> None:
    """Write the histories in steps; the last value makes them a snapshot."""
    checksum = 0
    file.truncate(0)
    file.write(_LINE)
    for domain in master.domains.values():
        for histories in master.export(domain.name):
            content = msgspec.msgpack.encode((_key(domain), histories))
            checksum = zlib.crc32(content, checksum)
            await asyncio.to_thread(file.write, len(content).to_bytes(_SIZE) + content)
    now = time.time()
    master.clock.read(now)
    content = msgspec.msgpack.encode((now, master.clock.behind, master.clock.latest, checksum))
    file.write(len(content).to_bytes(_SIZE) + content)
    file.flush()
    await asyncio.to_thread(os.fsync, file.fileno())


def _key(domain: Domain) -> _Key:
    return domain.name.encode("utf-8", "surrogateescape"), domain.algorithm, tuple(map(str, domain.rules))


def _values(file: BinaryIO) -> Iterator[bytes]:
    """Yield the values of a file from its start. Raises `OSError`, and `ValueError` for a file of another version."""
    if file.readline(len(_LINE)) != _LINE:
        raise ValueError("not a snapshot of this version of headgate and a machine with this byte order")
    while head := file.read(_SIZE):
        yield file.read(min(int.from_bytes(head), _MAX_VALUE))
