import asyncio
import errno
import fcntl
import os
import time
from itertools import repeat

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import Accounting, Domain, Master, Rule
from headgate.release import Status
from headgate.runtime import snapshot as module
from headgate.runtime.snapshot import Snapshots


def new_master(rule="10/h", name="api", algorithm="log"):
    return Master([Domain(name, (Rule.parse(rule),), algorithm), Domain("other", (Rule.parse("1/s"),))])


def account(master, count=1, identifier=b"a", now=None):
    now = time.time() if now is None else now
    accounting = Accounting("api", Status.ACCEPTED, identifier, now, now)
    return [master.account(accounting, now) for _ in range(count)]


def files(folder):
    return [path.name for path in folder.iterdir()]


class Setup:
    """A file, and what is logged about it."""

    def __init__(self, folder):
        self.path = folder / "snapshot"
        self.messages = []

    def snapshots(self, interval=3_600.0):
        return Snapshots(str(self.path), interval, self.messages.append)

    def save(self, master):
        """Start and stop a master; return the snapshots."""

        async def main():
            snapshots = self.snapshots()
            snapshots.start(lambda: master)
            await asyncio.sleep(0)
            await snapshots.close()
            return snapshots

        return asyncio.run(main())

    def restore(self, make=new_master):
        """Return the master, the snapshots, and what was logged."""
        snapshots = self.snapshots()
        self.messages.clear()
        return asyncio.run(snapshots.restore(make)), snapshots, self.messages


@pytest.fixture
def setup(tmp_path):
    return Setup(tmp_path)


def test_without_a_file_the_master_is_empty_and_nothing_is_logged(setup):
    master, _, messages = setup.restore()
    assert (len(master), messages) == (0, [])


def test_restart_gives_no_new_budget(setup):
    first = new_master()
    assert account(first, 4) == [None] * 4
    saved = setup.save(first)
    master, snapshots, messages = setup.restore()
    *free, held = account(master, 6)
    assert free == [None] * 5
    assert held.release > time.time()
    assert messages == [f"snapshot {setup.path}: 1 histories restored, saved 0 s ago"]
    assert setup.path.stat().st_mode & 0o777 == 0o600
    assert (saved.counters.writes["saved"], saved.counters.writes["failed"]) == (1, 0)
    assert saved.saved_at == pytest.approx(snapshots.saved_at, abs=1.0)


def test_expired_histories_are_left_out(setup):
    first = new_master()
    account(first, now=time.time() - 3_601.0, identifier=b"old")
    account(first)
    setup.save(first)
    master, _, _ = setup.restore()
    assert len(master) == 1


@pytest.mark.parametrize("make", [lambda: new_master("10/h burst 9"), lambda: new_master(algorithm="gcra")])
def test_domain_with_other_rules_is_left_out(setup, make):
    first = new_master()
    account(first)
    now = time.time()
    first.account(Accounting("other", Status.ACCEPTED, b"a", now, now), now)
    setup.save(first)
    master, _, (warning, summary) = setup.restore(make)
    assert warning == (f"warning: snapshot {setup.path}: domain b'api' left out: not configured with these rules")
    assert summary.endswith("1 histories restored, saved 0 s ago")
    assert [master.identifiers(name) for name in ("api", "other")] == [0, 1]


def test_snapshot_older_than_every_window_has_nothing_to_restore(setup, monkeypatch):
    first = new_master()
    account(first)
    setup.save(first)
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 7_300.0)
    master, _, (warning,) = setup.restore()
    assert warning == f"snapshot {setup.path}: 0 histories restored, saved 7300 s ago"
    assert len(master) == 0


def changed(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: content.index(b"api")],
        lambda content: b"",
        lambda content: changed(content, content.index(b"api") + 20),
        lambda content: content.replace(b"snapshot 2", b"snapshot 3"),
        lambda content: content.replace(b"little", b"big"),
        lambda content: content.replace(b"\0\0\0", b"\xff\xff\xff", 1),
    ],
)
def test_damaged_snapshot_is_ignored_as_a_whole(setup, damage):
    first = new_master()
    account(first)
    setup.save(first)
    setup.path.write_bytes(damage(setup.path.read_bytes()))
    master, _, (warning,) = setup.restore()
    assert warning.startswith(f"warning: snapshot {setup.path} ignored: ")
    assert len(master) == 0
    assert account(master, now=1_000.0) == [None]  # its clock is not that of the file


def test_file_of_a_snapshot_that_another_process_writes_is_left_alone(setup):
    with setup.path.with_name(".snapshot.new").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert setup.save(new_master()).counters.writes["failed"] == 1
    assert not setup.path.exists()


class TestClocks:
    """The clock of the process that saved the snapshot was another one."""

    def test_hold_of_a_clock_that_was_ahead_keeps_its_duration(self, setup, monkeypatch):
        now = time.time()
        monkeypatch.setattr(module.time, "time", lambda: now + 86_400.0)
        first = new_master("1/min burst 1")
        account(first, now=now + 86_400.0)
        setup.save(first)
        monkeypatch.undo()
        master, _, (message,) = setup.restore(lambda: new_master("1/min burst 1"))
        assert message.endswith("saved 0 s ago")
        (hold,) = master.holds("api", now=time.time())
        assert 55.0 < hold.release - now < 65.0
        assert master.clock.steps == 1


class TestErrors:
    """A snapshot that cannot be written."""

    def run(self, setup, monkeypatch, results):
        """Save as often as there are results: None, or the error of the system."""
        master = new_master()
        account(master)

        async def main():
            snapshots = setup.snapshots()
            for result in results:
                fsync = os.fsync

                def sync(descriptor, result=result, fsync=fsync):
                    if result is not None:
                        raise OSError(result, os.strerror(result))
                    fsync(descriptor)

                monkeypatch.setattr(os, "fsync", sync)
                await snapshots._save(setup.path, master)
                monkeypatch.undo()
            return snapshots.counters

        return asyncio.run(main())

    def test_full_disk_is_logged_once_and_the_previous_file_stays_until_recovery(self, setup, monkeypatch):
        counters = self.run(setup, monkeypatch, [None, errno.ENOSPC, errno.ENOSPC, None, None, errno.EIO])
        assert [message.rpartition(": ")[2] for message in setup.messages] == [
            "No space left on device; the previous one stays (master.snapshot names the file)", "saved again",
            "Input/output error; the previous one stays (master.snapshot names the file)",
        ]  # fmt: skip
        assert counters.writes == {"saved": 3, "failed": 3}
        assert len(setup.restore()[0]) == 1
        assert files(setup.path.parent) == ["snapshot"]

    @pytest.mark.parametrize(
        "path", ["missing/snapshot", "file/snapshot", ".", "pipe", "/dev/null", "link-to-pipe", "link-to-missing"]
    )
    def test_path_that_cannot_be_a_file_is_a_configuration_error(self, tmp_path, monkeypatch, path):
        monkeypatch.chdir(tmp_path)
        os.mkfifo("pipe")
        (tmp_path / "file").touch()
        (tmp_path / "link-to-pipe").symlink_to("pipe")
        (tmp_path / "link-to-missing").symlink_to("missing/snapshot")
        with pytest.raises(ConfigurationError, match=rf"master\.snapshot: invalid file '{path}'; expected a regular"):
            Snapshots(path, 1.0, print)
        with pytest.raises(ConfigurationError, match=r"master\.snapshot: .* cannot be used: "):
            Snapshots("a\0b", 1.0, print)

    def test_symbolic_link_stays_and_its_target_is_replaced(self, tmp_path):
        (tmp_path / "data").mkdir()
        (tmp_path / "link").symlink_to("data/snapshot")
        setup = Setup(tmp_path)
        setup.path = tmp_path / "link"
        master = new_master()
        account(master)
        for _ in range(2):  # the target is created, then replaced
            setup.save(master)
            assert (tmp_path / "link").is_symlink()
            assert files(tmp_path / "data") == ["snapshot"]
        assert len(setup.restore()[0]) == 1


class TestSteps:
    """A snapshot is made in steps, between which the master works on."""

    def test_each_step_is_limited(self):
        master = new_master()
        for number in range(20_000):
            account(master, identifier=b"%d" % number, now=1_000.0)
        sizes = [len(exported) // 2 for exported in master.export("api")]
        assert sum(sizes) == 20_000
        assert max(sizes) <= 4_096

    def test_long_histories_make_a_step_shorter(self):
        master = new_master("100000/h")
        for identifier in (b"a", b"b", b"c"):
            account(master, 70_000, identifier, now=1_000.0)
        assert [len(exported) // 2 for exported in master.export("api")] == [1, 1, 1, 0]

    def test_snapshot_under_way_is_given_up_at_the_end(self, setup, monkeypatch):
        """It lacks what was accounted meanwhile, so the last one must begin anew."""
        master = new_master()
        exports = iter([lambda *_: repeat([]), Master.export, Master.export])
        monkeypatch.setattr(Master, "export", lambda *arguments: next(exports)(*arguments))

        async def main():
            snapshots = setup.snapshots(0.001)
            snapshots.start(lambda: master)
            while not setup.path.with_name(".snapshot.new").exists():  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.001)
            account(master)
            async with asyncio.timeout(20):
                await snapshots.close()
            assert snapshots.counters.writes["saved"] == 1

        asyncio.run(main())
        assert len(setup.restore()[0]) == 1
        assert files(setup.path.parent) == ["snapshot"]

    def test_clock_that_is_set_back_meanwhile_is_that_of_the_end(self, setup, monkeypatch):
        master, export = new_master("1/min burst 1"), Master.export
        account(master)

        now = time.time()

        def step(*arguments):
            yield from export(*arguments)
            monkeypatch.setattr(module.time, "time", lambda: now - 100.0)

        monkeypatch.setattr(Master, "export", step)
        setup.save(master)
        restored, _, _ = setup.restore(lambda: new_master("1/min burst 1"))
        assert restored.clock.behind == master.clock.behind > 90.0
        assert len(list(restored.holds("api", now=now - 100.0))) == 1
