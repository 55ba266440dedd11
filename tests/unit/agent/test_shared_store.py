"""The store between a throttle and the file: what it does at once, what its thread does, and when the file fails."""

import atexit
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, contextmanager

import pytest

from headgate.agent import shared_file as file_module
from headgate.agent import shared_store as module
from headgate.agent.shared_store import SqliteStore
from headgate.throttle import Policy
from headgate.throttle.entry import OPT_OUT, EntryKey, OptedOut, ResponseOutcome, ResponseReceived
from headgate.throttle.target import Target

ORIGIN = "http://www.example.com"
NOW = 1_000.0
A = Target(ORIGIN, "/a")
TIMEOUT = 30.0  # seconds; only ever reached by a failing test


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(module, "_CLOSE_TIMEOUT", TIMEOUT)
    monkeypatch.setattr(module, "_FORK_TIMEOUT", TIMEOUT)


@pytest.fixture
def hasty(monkeypatch):
    """Wait for no lock, and try a file that could not be used again at once."""
    monkeypatch.setattr(file_module, "_BUSY_TIMEOUT", 0.0)
    monkeypatch.setattr(module, "_RETRY_INTERVAL", 0.001)
    monkeypatch.setattr(module, "_REFRESH_INTERVAL", 0.001)


def by_hand_alone(store):
    return store._phase is not module._Phase.OPEN or store._rounds < store._rounds_wanted


@pytest.fixture
def by_hand(monkeypatch):
    """Have the threads use the file when they are asked to synchronize, and never by themselves."""
    monkeypatch.setattr(module, "_REFRESH_INTERVAL", 3_600.0)
    monkeypatch.setattr(SqliteStore, "_has_work", by_hand_alone)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def make(path):
    """Return the function that makes one more store on the file; all are closed at the end."""
    made = []

    def one(**bounds):
        made.append(
            SqliteStore(path, Policy(jitter_factor=0), **{"max_targets": 1_000, "max_opt_outs": 1_000} | bounds)
        )
        return made[-1]

    yield one
    for each in made:
        each.close()


def fail(store, target=A, times=1, *, now=NOW, **values):
    for _ in range(times):
        store.record(target, ResponseReceived(now=now, outcome=ResponseOutcome.FAILURE, **values))


def failures(store, target=A, *, now=NOW):
    found = store.find(target, now=now)
    return 0 if found is None else found.failures


def synchronize(*stores):
    assert all(each.synchronize(TIMEOUT) for each in (*stores, *stores)), [each.trouble for each in stores]


def until(condition):
    """Wait for what another thread does."""
    event = threading.Event()
    for _ in range(int(TIMEOUT / 0.001)):
        if condition():
            return
        event.wait(0.001)
    raise AssertionError("it did not come to that")


@contextmanager
def locked(path):
    """Keep every process from writing."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


class TestSharing:
    def test_a_change_is_known_at_once_locally_and_soon_elsewhere(self, make):
        one, other = make(), make()
        failures(other)
        fail(one, times=3)
        assert failures(one) == 3
        until(lambda: failures(other) == 3)
        until(lambda: one.pending == 0)

    def test_changes_queued_during_a_read_are_applied_again(self, make, by_hand, monkeypatch):
        one, other = make(), make()
        fail(other, times=2)
        synchronize(other)
        take = SqliteStore._take

        def noting(self, news):
            if self is one and news.rows:
                fail(one)
            take(self, news)

        monkeypatch.setattr(SqliteStore, "_take", noting)
        assert one.synchronize(TIMEOUT)
        monkeypatch.undo()
        assert (failures(one), one.pending) == (3, 1)

    def test_a_hold_is_nowhere_shorter_than_at_its_origin(self, make, by_hand):
        one, other = make(), make()
        fail(one, times=9)
        synchronize(one, other)
        for _ in range(9):
            one.record(A, ResponseReceived(now=NOW, outcome=ResponseOutcome.SUCCESS))
        one.synchronize(TIMEOUT)
        fail(other, now=NOW + 20)
        learned = other.find(A, now=NOW + 20).backoff
        synchronize(other, one)
        assert failures(one, now=NOW + 20) == 1
        assert one.find(A, now=NOW + 20).backoff == other.find(A, now=NOW + 20).backoff == learned

    def test_queued_changes_move_to_a_bucket_of_another_process(self, make, by_hand):
        one, other = make(), make()
        one.declare(Target(ORIGIN, "/m/x"), "/m", now=NOW)
        fail(one, Target(ORIGIN, "/m/x"))
        synchronize(one)
        fail(other, Target(ORIGIN, "/m/a"), 2)
        with other._lock:
            news = other._file.exchange()
        other._take(news)
        assert failures(other, Target(ORIGIN, "/m/b")) == 3
        assert [key.path for key, _ in other._noted] == ["/m", "/m"]
        synchronize(other, one)
        assert failures(one, Target(ORIGIN, "/m/c")) == failures(other, Target(ORIGIN, "/m/c")) == 3

    def test_a_reset_applies_to_all_processes_and_keeps_opt_outs(self, make, by_hand):
        one, other = make(), make()
        fail(one, times=3)
        one.change(EntryKey(OPT_OUT, "a.example"), OptedOut())
        synchronize(one, other)
        other.change(EntryKey(OPT_OUT, "b.example"), OptedOut())
        fail(one)
        fail(other)
        other.reset()
        fail(other, Target(ORIGIN, "/b"))
        assert (failures(other), other.size, other.pending) == (0, 1, 2)
        synchronize(other, one)
        assert (failures(one), failures(other), failures(one, Target(ORIGIN, "/b"))) == (1, 1, 1)
        for store in (one, other):
            assert all(store.get(EntryKey(OPT_OUT, f"{host}.example")) for host in "ab")

    def test_rows_do_not_come_back_after_a_reset(self, make, by_hand, monkeypatch):
        one, other = make(), make()
        fail(other, times=3)
        synchronize(other)
        take = SqliteStore._take

        def resetting(self, news):
            if self is one and news.rows:
                one.reset()
            take(self, news)

        monkeypatch.setattr(SqliteStore, "_take", resetting)
        assert one.synchronize(TIMEOUT)
        assert failures(one) == 0
        synchronize(one, other)
        assert (one.size, other.size) == (0, 0)

    def test_each_process_drops_expired_entries_itself(self, make):
        one, other = make(), make()
        fail(one)
        synchronize(one, other)
        assert other.forget(now=NOW + 900) == 1
        assert (one.size, other.size) == (1, 0)

    def test_counters_survive_a_new_view(self, make, by_hand):
        one = make(max_targets=2, max_opt_outs=1)
        for number in range(5):
            fail(one, Target(ORIGIN, f"/{number}"), 3)
            one.change(EntryKey(OPT_OUT, f"{number}.example"), OptedOut())
        assert (one.counters.evicted, one.counters.opt_outs_evicted) == (3, 4)
        one.reset()
        synchronize(one)
        fail(one, times=3)
        fail(one, Target(ORIGIN, "/b"), 3)
        fail(one, Target(ORIGIN, "/c"), 3)
        assert one.counters.evicted == 4

    def test_nothing_is_open_and_no_thread_runs_before_it_is_used(self, make, path):
        threads = threading.active_count()
        make()
        assert [each.name for each in path.parent.iterdir()] == ["file"]
        assert threading.active_count() == threads


class TestNeverWaiting:
    """While another program has the file locked, every call is answered, with what this process knows."""

    def test_no_call_uses_the_file_in_the_callers_thread(self, make, path, monkeypatch):
        one = make()
        exchange, threads = file_module.ThrottleFile.exchange, set()

        def recorded(self, *given, **more):
            threads.add(threading.get_ident())
            return exchange(self, *given, **more)

        monkeypatch.setattr(file_module.ThrottleFile, "exchange", recorded)
        monkeypatch.setattr(file_module, "_BUSY_TIMEOUT", TIMEOUT)
        with locked(path):
            fail(one, times=3)
            until(lambda: threads)
            fail(one)
            one.declare(A, "/", now=NOW)
            one.change(EntryKey(OPT_OUT, "a.example"), OptedOut())
            one.clear_backoff(ORIGIN, now=NOW, end=lambda: NOW)
            assert (failures(one), one.size, one.get(EntryKey(OPT_OUT, "a.example")) is None) == (4, 1, False)
            assert one.forget(now=NOW) == 0
            one.reset()
            fail(one)
            assert one.pending > 0, "the file was locked all the time"
        synchronize(one)
        assert threading.get_ident() not in threads
        assert failures(make()) == 1


class TestTrouble:
    def test_a_lock_is_reported_and_queued_changes_are_written_after_it(self, make, path, hasty):
        one, other = make(), make()
        fail(other)
        synchronize(other)
        with locked(path):
            fail(one, times=3)
            until(lambda: one.trouble)
            assert one.trouble == f"{path} is locked by another program; wait for that program, or end it"
            assert not one.synchronize(TIMEOUT)
            fail(one, times=2)
            assert (failures(one), one.pending, one.lost) == (5, 5, 0)
        until(lambda: not one.pending)
        synchronize(one, other)
        assert (failures(one), failures(other), one.trouble) == (6, 6, "")

    def test_changes_beyond_the_queue_are_lost(self, make, path, hasty, monkeypatch):
        monkeypatch.setattr(module, "_MAX_PENDING", 4)
        one, other = make(), make()
        with locked(path):
            fail(one, times=7)
            assert (failures(one), one.pending, one.lost) == (7, 4, 3)
        synchronize(one, other)
        assert failures(other) == 4

    def test_changes_of_a_failed_commit_are_written_once_in_order(self, make, path, hasty, monkeypatch):
        one, other = make(), make()
        rows = file_module.ThrottleFile._rows

        def broken(self, after):
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(file_module.ThrottleFile, "_rows", broken)
        fail(one, times=2)
        until(lambda: one.trouble)
        assert one.trouble == f"{path} cannot be used (disk I/O error); choose a path on a local disk"
        fail(one, now=NOW + 1)
        fail(one, Target(ORIGIN, "/b"))
        assert (failures(one, now=NOW + 1), one.pending) == (3, 4)
        monkeypatch.setattr(file_module.ThrottleFile, "_rows", rows)
        synchronize(one, other)
        assert [failures(store, now=NOW + 1) for store in (one, other)] == [3, 3]
        assert failures(other, Target(ORIGIN, "/b")) == 1
        assert other.find(A, now=NOW + 1).failed == NOW + 1
        assert (one.pending, one.lost) == (0, 0)

    def test_a_reset_that_cannot_be_written_is_written_later(self, make, path, hasty):
        one, other = make(), make()
        fail(one, times=3)
        one.change(EntryKey(OPT_OUT, "a.example"), OptedOut())
        synchronize(one, other)
        with locked(path):
            fail(one)
            one.change(EntryKey(OPT_OUT, "b.example"), OptedOut())
            until(lambda: one.trouble)
            one.reset()
            fail(one, Target(ORIGIN, "/b"))
            assert not one.synchronize(TIMEOUT)
            assert (one.size, one.pending) == (1, 2)
        synchronize(one, other)
        assert (one.size, failures(other), failures(other, Target(ORIGIN, "/b"))) == (1, 0, 1)
        assert other.get(EntryKey(OPT_OUT, "b.example")) is not None

    def test_changes_queued_during_a_failed_write_come_after_it(self, make, by_hand, monkeypatch):
        one, other = make(), make()
        out = [EntryKey(OPT_OUT, f"{number}.example") for number in range(2)]
        meanwhile = []

        def broken(self, changes, *, reset=False):
            meanwhile.pop()()
            raise sqlite3.OperationalError("disk I/O error")

        def fail_again():
            fail(one, now=NOW + 1)
            fail(one, Target(ORIGIN, "/b"))

        def reset():
            one.reset()
            one.change(out[1], OptedOut())

        exchange = file_module.ThrottleFile.exchange
        monkeypatch.setattr(file_module.ThrottleFile, "exchange", broken)
        fail(one)
        one.change(out[0], OptedOut())
        meanwhile.append(fail_again)
        assert not one.synchronize(TIMEOUT)
        assert [key.path for key, _ in one._noted] == ["/a", "", "/a", "/b"]
        assert one.pending == 4
        meanwhile.append(reset)
        assert not one.synchronize(TIMEOUT)
        assert ([key for key, _ in one._noted], one.pending) == (out, 2)
        monkeypatch.setattr(file_module.ThrottleFile, "exchange", exchange)
        synchronize(one, other)
        assert (other.size, [other.get(key) is not None for key in out]) == (0, [True, True])

    @pytest.mark.parametrize("size", [0, 100, 8_192])
    def test_damage_is_reported_until_the_file_is_deleted(self, make, path, hasty, size):
        one = make()
        fail(one, times=3)
        synchronize(one)
        one._before_fork()  # which closes the file
        for each in path.parent.iterdir():
            each.unlink()
        path.write_bytes(os.urandom(size) or b"x" * 600)
        one._after_fork(is_child=False)
        until(lambda: one.trouble)
        assert one.trouble == f"{path} is not an SQLite database; choose another path, or delete the file"
        fail(one)
        assert failures(one) == 4
        path.unlink()
        until(lambda: not one.trouble)
        assert failures(one) == 1, "what was in the file is gone, what was noted since is not"

    def test_errors_of_the_thread_are_reported(self, make, path, hasty, monkeypatch):
        one = make()
        monkeypatch.setattr(file_module.ThrottleFile, "exchange", lambda *_, **__: 1 / 0)
        fail(one)
        until(lambda: "division by zero" in one.trouble)
        monkeypatch.undo()
        synchronize(one)
        assert failures(make()) == 1

    def test_a_thread_that_cannot_start_is_reported_and_retried(self, make, path, monkeypatch):
        one = make()

        def refuse(_):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            fail(one)
            assert one.trouble == f"{path} cannot be used now (can't start new thread)"
            assert (failures(one), one.pending) == (1, 1)
        synchronize(one)
        assert failures(make()) == 1

    def test_synchronize_obeys_its_timeout(self, make, path, monkeypatch):
        monkeypatch.setattr(file_module, "_BUSY_TIMEOUT", TIMEOUT)
        one = make()
        with locked(path):
            fail(one)
            assert not one.synchronize(0.0)


class TestClosing:
    def test_close_writes_queued_changes(self, make, by_hand):
        one = make()
        fail(one, times=3)
        one.close()
        one.close()
        assert (one.pending, one.lost) == (0, 0)
        assert failures(make()) == 3

    def test_close_reports_changes_that_cannot_be_written(self, make, path, hasty):
        one = make()
        with locked(path):
            fail(one, times=3)
            one.close()
        assert (one.pending, one.lost) == (0, 3)
        assert failures(make()) == 0

    def test_close_does_not_wait_for_a_hanging_thread(self, make, path, monkeypatch):
        monkeypatch.setattr(module, "_CLOSE_TIMEOUT", 0.0)
        monkeypatch.setattr(file_module, "_BUSY_TIMEOUT", TIMEOUT)
        one = make()
        with locked(path):
            fail(one, times=3)
            one.close()
            assert one.lost == 3
        one._thread.join()
        assert one.trouble == f"{path} is not used any more, since this throttle was closed"

    def test_a_closed_store_continues_in_memory(self, make, path):
        one, other = make(), make()
        fail(one, times=2)
        one.close()
        fail(one)
        one.reset()
        fail(one)
        assert (failures(one), one.lost, one.pending) == (1, 2, 0)
        assert one.trouble == f"{path} is not used any more, since this throttle was closed"
        assert not one.synchronize(TIMEOUT)
        synchronize(other)
        assert failures(other) == 2
        assert not one._thread.is_alive()

    def test_an_unused_store_can_be_closed(self, make):
        one = make()
        one.close()
        fail(one)
        assert (failures(one), one._thread) == (1, None)

    def test_the_end_of_the_program_closes_the_store(self, make, monkeypatch):
        registered = []
        monkeypatch.setattr(atexit, "register", registered.append)
        monkeypatch.setattr(atexit, "unregister", registered.remove)
        one = make()
        assert registered == [one.close]
        one.close()
        assert registered == []


FORKING = """
import os, sys
from headgate.agent import shared_file as file, shared_store as store
from headgate.throttle import Policy
from headgate.throttle.entry import ResponseOutcome, ResponseReceived
from headgate.throttle.target import Target

A = Target("http://www.example.com", "/a")
one = store.SqliteStore(sys.argv[1], Policy(), max_targets=9, max_opt_outs=9)
def fail():
    one.record(A, ResponseReceived(now=9.0, outcome=ResponseOutcome.FAILURE))
def failures():
    found = one.find(A, now=9.0)
    return 0 if found is None else found.failures
def in_child(run):
    child = os.fork()
    if not child:
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
"""


def in_another_process(path, script):
    """Run a script that forks, and see that it ends well and the file is whole."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING + script, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class TestForking:
    def test_queued_changes_are_written_only_by_the_parent(self, path, make):
        script = """
store._REFRESH_INTERVAL = 3600.0
store.SqliteStore._has_work = lambda self: self._phase is not store._Phase.OPEN or self._rounds < self._rounds_wanted
fail()
assert one.synchronize(30.0)
fail()
def run():
    assert (failures(), one.pending) == (2, 0)
    fail()
    assert one.synchronize(30.0)
    one.close()
    assert one.lost == 0
in_child(run)
assert one.pending == 1
one.close()
"""
        in_another_process(path, script)
        assert failures(make(), now=9.0) == 3

    def test_the_file_is_closed_during_a_fork(self, make, path):
        one = make()
        fail(one)
        synchronize(one)
        assert len(list(path.parent.iterdir())) == 3
        one._before_fork()
        assert [each.name for each in path.parent.iterdir()] == ["file"]
        one._after_fork(is_child=False)
        synchronize(one)

    def test_a_fork_during_a_hanging_write_leaves_the_child_without_the_file(self, path, make):
        script = """
import sqlite3
store._FORK_TIMEOUT, file._BUSY_TIMEOUT = 0.0, 60.0
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
fail()
while not one._is_in_file:
    pass
def run():
    fail()
    assert (failures(), one.pending, one.lost) == (2, 0, 1)
    assert one.trouble.endswith("was in use when this process was forked; use it after the fork only"), one.trouble
    assert not one.synchronize(30.0)
    one.close()
in_child(run)
other.execute("ROLLBACK")
other.close()
assert one.synchronize(30.0)
one.close()
"""
        in_another_process(path, script)
        assert failures(make(), now=9.0) == 1

    def test_an_unused_store_shares_after_a_fork_outside_python(self, make):
        one, other = make(), make()
        one._after_fork(is_child=True)
        fail(one)
        synchronize(one, other)
        assert (failures(other), one.trouble) == (1, "")
