"""When a master saves its histories to a file, and what it restores of that file at its start.

A snapshot is made in steps: each copies a limited number of histories in the event loop, and a thread writes them.
"""

import asyncio
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from headgate.errors import ConfigurationError, reason_of
from headgate.limit import Master
from headgate.release import ASAP
from headgate.runtime.master.snapshot_file import (
    Header,
    InvalidSnapshot,
    SnapshotDomain,
    SnapshotReader,
    SnapshotWriter,
)

_TOLERANCE: Final = 2.0
"""Seconds that a snapshot may be ahead of the clock without a message."""


class SnapshotCounters(msgspec.Struct):
    """What has become of the snapshots since the start."""

    saved: int = 0
    """Snapshots saved."""
    failed: int = 0
    """Snapshots that could not be saved."""


class Snapshots:
    """Saves the histories of a master to `path` every `interval` seconds and at the end; with an empty path, never.

    `log` is called with lines for the operator. Raises `ConfigurationError` as `snapshot_path` does.
    """

    def __init__(self, path: str, interval: float, log: Callable[[str], None]) -> None:
        self.counters = SnapshotCounters()
        """The counters since the start."""
        self.saved_at = 0.0
        """Time of the last snapshot, also of the one that was restored; seconds since 1970, 0 for none."""
        self.identity = secrets.token_hex(8)
        """By which gatekeepers know the histories of this master: that of its predecessor if it has all of them."""
        self.accounted_until = ASAP
        """Requests received until then are part of the histories, although gatekeepers send them again."""
        self._path = snapshot_path(path) if path else None
        self._interval = interval
        self._log = log
        self._master: Callable[[], Master] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._reported = False
        self._is_continued = False

    async def restore(self, make: Callable[[], Master]) -> Master:
        """Return a master that `make` makes, with the histories of the file; without them if the file is invalid."""
        return await asyncio.to_thread(self._restore, make, time.time())

    def start(self, master: Callable[[], Master]) -> None:
        """Save the histories of the master that `master` returns, from now on."""
        if self._path is not None:
            self._master = master
            self._saving = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Save the histories a last time, if they have been saved so far."""
        if self._saving is not None:
            self._stop.set()
            await self._saving
            self._stop.clear()
            await self._save(final=True)

    async def _run(self) -> None:
        if self._is_continued:
            await self._save()  # so that the file is not taken for the last one of this process
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(self._interval):
                    await self._stop.wait()
            except TimeoutError:
                await self._save()

    async def _save(self, *, final: bool = False) -> None:
        """Save a snapshot. The first of several errors is logged; the previous file stays."""
        assert self._path is not None
        assert self._master is not None
        master, now = self._master(), time.time()
        master.clock.read(now)
        try:
            complete = await self._write(self._path, master, now, final=final)
        except OSError as error:
            self.counters.failed += 1
            if not self._reported:
                self._reported = True
                self._log(f"warning: snapshot {self._path}: {_reason(error)}; the previous one stays")
            return
        if complete:
            self.counters.saved += 1
            self.saved_at = now
            if self._reported:
                self._reported = False
                self._log(f"snapshot {self._path}: saved again")

    async def _write(self, path: Path, master: Master, now: float, *, final: bool) -> bool:
        """Write the file; return False if that was given up, because the next snapshot is due or would differ."""
        clock = master.clock
        behind = clock.behind
        domains = tuple(map(SnapshotDomain.of, master.domains.values()))
        header = Header(now, behind, clock.latest, self.identity, final, sys.byteorder, domains)
        writer = await asyncio.to_thread(SnapshotWriter, path, header)
        try:
            for index, name in enumerate(master.domains):
                for histories in master.export(name):
                    await asyncio.to_thread(writer.add, (index, histories))
                    # After a step of the clock, the instants of one file would have two meanings.
                    if self._stop.is_set() or clock.behind != behind:
                        writer.discard()
                        return False
            await asyncio.to_thread(writer.commit)
        except BaseException:
            writer.discard()
            raise
        return True

    def _restore(self, make: Callable[[], Master], now: float) -> Master:
        if self._path is None:
            return make()
        try:
            with self._path.open("rb") as file:
                return self._fill(make(), SnapshotReader(file), now, written=os.fstat(file.fileno()).st_mtime)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._log(f"warning: snapshot {self._path} ignored: {_reason(error)}")
        except InvalidSnapshot as error:
            self._log(f"warning: snapshot {self._path} ignored: {error}")
        return make()

    def _fill(self, master: Master, reader: SnapshotReader, now: float, *, written: float) -> Master:
        header = reader.header
        age = now - header.saved
        longest = max((domain.window for domain in master.domains.values()), default=0.0) + master.max_delay
        if age > longest:
            raise InvalidSnapshot(f"saved {age:.0f} s ago; no history has an effect for more than {longest:.0f} s")
        if header.byteorder != sys.byteorder:
            raise InvalidSnapshot(f"saved on a {header.byteorder}-endian machine; this one is {sys.byteorder}-endian")
        # Instants continue from the latest one: if this machine's clock is behind that of the snapshot, nothing lasts
        # longer than it would have then.
        master.clock.resume(header.behind, header.latest)
        names = [self._same_domain(master, domain) for domain in header.domains]
        restored = 0
        for index, histories in reader.parts():
            name = names[index]
            if name is not None:
                try:
                    restored += master.restore(name, histories, now)
                except ValueError as error:
                    raise InvalidSnapshot(str(error)) from None
        if header.final:
            self.identity, self._is_continued = header.identity, True
        else:  # the predecessor was killed: gatekeepers do not know what it had received after the snapshot
            self.accounted_until = max(header.saved, written)
        self.saved_at = header.saved
        ahead = f", {-age:.0f} s ahead of this machine's clock" if age < -_TOLERANCE else f" {max(0.0, age):.0f} s ago"
        noun = "history" if restored == 1 else "histories"
        self._log(f"snapshot {self._path}: {restored} {noun} restored, saved{ahead}")
        return master

    def _same_domain(self, master: Master, saved: SnapshotDomain) -> str | None:
        """Return the name of a domain that was saved, None if `master` cannot use its histories."""
        name = saved.name.decode("utf-8", "surrogateescape")
        domain = master.domains.get(name)
        if domain is not None and SnapshotDomain.of(domain) == saved:
            return name
        reason = "is not configured" if domain is None else "has other rules or another algorithm now"
        self._log(f"warning: snapshot {self._path}: domain {name!r} left out: it {reason}")
        return None


def snapshot_path(text: str) -> Path:
    """Return the path of a snapshot; of a symbolic link, the path of its target, so that the link stays.

    Raises `ConfigurationError` unless it is, or can become, a regular file: a pipe would block the master.
    """
    path = Path(text)
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        is_file = path.parent.is_dir()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"master.snapshot: {text!r} cannot be used: {reason_of(error)}") from None
    if not is_file:
        raise ConfigurationError(
            f"master.snapshot: invalid file {text!r}; expected a regular file, or a new one in a directory that exists"
        )
    return path


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
