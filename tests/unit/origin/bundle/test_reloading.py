import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from headgate.errors import FormatError
from headgate.origin.bundle import snapshot as snapshot_module
from headgate.origin.bundle.snapshot import ReloadingBundle


@pytest.fixture
def complaints():
    return []


def replace(path, content):
    other = path.with_suffix(".new")
    other.write_bytes(content)
    other.rename(path)


def renewed(publication):
    asyncio.run(publication.renew(at_once=True))
    return publication.snapshot


def test_another_file_at_the_path_is_another_snapshot(bundle, complaints):
    path = bundle({"url": "/", "payload": b"one"})
    publication = ReloadingBundle(path, complain=complaints.append)
    first = publication.snapshot
    assert renewed(publication) is first
    assert publication.is_current
    replace(path, bundle({"url": "/", "payload": b"two"}, name="two.wbn").read_bytes())
    assert not publication.is_current
    second = renewed(publication)
    assert second is not first
    assert second.digest != first.digest
    assert first.file.is_unchanged()
    assert publication.is_current
    assert complaints == []


def test_invalid_bundle_is_reported_once_and_not_served(bundle, complaints):
    path = bundle()
    good = path.read_bytes()
    publication = ReloadingBundle(path, complain=complaints.append)
    first = publication.snapshot
    for content in (b"no bundle", b"no bundle", b"nothing either"):
        replace(path, content)
        assert renewed(publication) is first
        assert renewed(publication) is first
    path.unlink()
    assert renewed(publication) is first
    assert not publication.is_current
    assert len(complaints) == 3
    assert all(complaint.endswith("; the bundle loaded before is still served") for complaint in complaints)
    assert complaints[0].startswith(str(path))
    replace(path, good)
    assert renewed(publication) is not first
    assert publication.is_current


def test_a_file_that_is_still_being_written_waits(bundle, complaints):
    path = bundle({"url": "/", "payload": b"x" * 5000})
    whole = path.read_bytes()
    publication = ReloadingBundle(path, complain=complaints.append)
    first = publication.snapshot
    replace(path, whole[:-1000])
    assert renewed(publication) is first
    assert "ends before the bundle does" in complaints[0]
    replace(path, whole)
    assert renewed(publication) is not first


def test_a_cut_file_is_followed_by_another_where_there_was_nothing_better(bundle):
    path = bundle({"url": "/", "payload": b"x" * 5000})
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    publication = ReloadingBundle(path)
    first = publication.snapshot
    replace(path, whole[:-500])
    assert renewed(publication) is not first


def test_it_looks_once_a_second_and_not_twice_at_once(bundle, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("headgate.origin.bundle.snapshot.time.monotonic", lambda: now[0])
    path = bundle()
    publication = ReloadingBundle(path)
    looks = []
    monkeypatch.setattr("headgate.origin.bundle.snapshot.file_state", lambda path: looks.append(now[0]))
    for now[0] in (100.0, 100.5, 100.9, 101.0, 101.5, 102.5):
        asyncio.run(publication.renew())
    # The first look finds no state there and opens the file: 100.0, 101.0 and 102.5 are looks.
    assert looks == [100.0, 101.0, 102.5]


@pytest.fixture
def opening(monkeypatch):
    """Hold every opening of a file until `release` is set; `begun` counts them."""

    class Opening:
        def __init__(self):
            self.begun = 0
            self.threads = []
            self.started, self.release = threading.Event(), threading.Event()

        def __call__(self, path, profile):
            self.begun += 1
            self.threads.append(threading.current_thread())
            self.started.set()
            assert self.release.wait(30)
            return opened(path, profile)

        async def begins(self):
            assert await asyncio.to_thread(self.started.wait, 30)

    opened = snapshot_module._open
    held = Opening()
    monkeypatch.setattr(snapshot_module, "_open", held)
    yield held
    held.release.set()


@pytest.fixture
def replaced(bundle):
    """Give a publication whose file has been replaced."""
    publication = ReloadingBundle(bundle({"url": "/", "payload": b"one"}))
    replace(Path(publication.absolute), bundle({"url": "/", "payload": b"two"}, name="two.wbn").read_bytes())
    return publication


def test_a_cancelled_wait_ends_neither_the_load_nor_the_next_one(replaced, opening):
    async def cancel_one():
        first = replaced.snapshot
        waiting = asyncio.create_task(replaced.renew(at_once=True))
        await opening.begins()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert replaced.snapshot is first
        opening.release.set()
        await replaced.renew(at_once=True)
        assert replaced.snapshot is not first

    asyncio.run(cancel_one())
    assert opening.begun == 1


def test_a_load_that_is_cancelled_itself_is_begun_again(replaced, opening):
    """As when the loop that a load was begun in ends: the next to look may be in another."""

    async def begin():
        replaced.check(at_once=True)
        await opening.begins()
        opening.release.set()

    first = replaced.snapshot
    asyncio.run(begin())
    if replaced.snapshot is first:  # else the thread was quicker than the end of the loop
        assert renewed(replaced) is not first


def test_the_end_of_a_loop_does_not_wait_for_a_load(replaced, opening):
    """Hashing a large file takes long, and a server that is asked to end has nothing to serve it to."""

    async def begin():
        replaced.check(at_once=True)
        await opening.begins()

    ending = threading.Thread(target=asyncio.run, args=[begin()], daemon=True)
    ending.start()
    ending.join(10)
    assert not ending.is_alive()
    assert [thread.daemon for thread in opening.threads] == [True]  # nor does the end of the process


def test_a_load_whose_loop_was_closed_under_it_is_begun_again(replaced, opening):
    async def begin():
        replaced.check(at_once=True)
        await opening.begins()

    first = replaced.snapshot
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()  # unlike asyncio.run, this cancels nothing: the task of the load never ends
    opening.release.set()
    assert renewed(replaced) is not first


def test_looking_waits_for_nothing_and_loads_once(replaced, opening):
    async def look():
        first = replaced.snapshot
        for _ in range(10):
            replaced.check(at_once=True)
            await asyncio.sleep(0)
        await opening.begins()
        assert replaced.snapshot is first
        opening.release.set()
        await replaced.renew()
        assert replaced.snapshot is not first

    asyncio.run(look())
    assert opening.begun == 1


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError(), RuntimeError("no thread")])
def test_what_only_this_machine_lacked_is_tried_again(replaced, complaints, monkeypatch, error):
    replaced._complain = complaints.append
    first = replaced.snapshot

    def fail(path, profile):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_module, "_open", fail)
        assert renewed(replaced) is first
        assert renewed(replaced) is first
    assert len(complaints) == 1
    assert renewed(replaced) is not first


def test_a_file_replaced_between_the_look_and_its_opening_is_read_once(replaced, bundle, monkeypatch):
    again = bundle({"url": "/", "payload": b"three"}, name="three.wbn")

    def opened_late(path, profile, opened=snapshot_module._open):
        again.rename(path)
        return opened(path, profile)

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_module, "_open", opened_late)
        third = renewed(replaced)
    assert replaced.is_current
    assert renewed(replaced) is third


def test_a_path_keeps_its_meaning_when_the_program_goes_elsewhere(bundle, tmp_path, monkeypatch):
    path = bundle()
    monkeypatch.chdir(tmp_path)
    publication = ReloadingBundle(path.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    first = publication.snapshot
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").rename(path)
    assert renewed(publication) is not first


def test_missing_file_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(FormatError):
        ReloadingBundle(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        ReloadingBundle(tmp_path / "none")
