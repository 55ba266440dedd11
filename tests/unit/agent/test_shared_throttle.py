import inspect
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headgate import agent
from headgate.agent import Courtesy, SharedThrottle
from headgate.agent import shared_throttle as module
from headgate.agent.sharing import file as file_module
from headgate.agent.sharing.file import Forked
from headgate.errors import ConfigurationError
from headgate.release import ASAP
from headgate.throttle import Policy, Throttle

NOW = 1_763_683_200.0
X = "http://www.example.com/x"
Y = "http://www.example.com/y"
PLAIN = Policy(jitter_factor=0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def make(path):
    """Return the function that makes one more throttle on the file; all are closed at the end."""
    made = []

    def one(policy=PLAIN, **settings):
        made.append(SharedThrottle(path, policy, **{"draw": lambda: 0.0, **settings}))
        return made[-1]

    yield one
    for each in made:
        each.close()


@pytest.fixture
def hasty(monkeypatch):
    """Wait for nobody, and leave nothing alone for long."""
    monkeypatch.setattr(file_module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "_REST", 0.0)
    monkeypatch.setattr(module, "_LOOK", 0.0)


def fail(throttle, url=X, times=1, *, now=NOW, status=503, headers=(), **more):
    for _ in range(times):
        throttle.response_received(url, status, headers, now=now, **more)


def failures(throttle, url=X, *, now=NOW):
    return throttle.explain(url, now=now).failures


@contextmanager
def stranger(path):
    """Have the file as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        yield connection


@contextmanager
def locked(path):
    """Keep everybody from writing."""
    with stranger(path) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def refused(path, **settings):
    with pytest.raises(ConfigurationError) as refusal:
        SharedThrottle(path, **settings)
    return str(refusal.value)


def elsewhere(path, limit):
    """Make a throttle in a process under a limit; return what it said."""
    script = (
        "import os, resource, sys\n"
        "from headgate.agent import SharedThrottle\n"
        "from headgate.errors import ConfigurationError\n"
        f"{limit}\n"
        "try:\n"
        "    SharedThrottle(sys.argv[1])\n"
        "except ConfigurationError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", script, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class TestImporting:
    def test_nobody_imports_sqlite_who_does_not_share(self):
        script = (
            "import sys, headgate.agent as agent\n"
            "assert 'sqlite3' not in sys.modules\n"
            "assert 'SharedThrottle' in agent.__all__\n"
            "agent.SharedThrottle\n"
            "assert 'sqlite3' in sys.modules\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    def test_what_is_not_there_is_not_there(self):
        with pytest.raises(AttributeError, match=r"^module 'headgate.agent' has no attribute 'Shared'$"):
            _ = agent.Shared


class TestIsAThrottle:
    @pytest.mark.parametrize("name", [name for name in vars(Throttle) if not name.startswith("_")] + ["__len__"])
    def test_it_has_all_that_one_has(self, name):
        counters = {"evicted", "clock_steps"}
        assert name in vars(SharedThrottle) or name in counters, "what is inherited is neither locked nor shared"
        mine, its = getattr(SharedThrottle, name), getattr(Throttle, name)
        if callable(its):
            assert inspect.signature(mine) == inspect.signature(its)

    def test_it_is_made_as_one_is(self):
        mine, its = (list(inspect.signature(each).parameters.values()) for each in (SharedThrottle, Throttle))
        assert [mine[0].name, *mine[1:]] == ["path", *its]

    def test_a_courtesy_takes_it(self, make):
        throttle = make()
        courtesy = Courtesy(throttle=throttle, clock=lambda: NOW)
        fail(throttle, times=3)
        assert courtesy.explain(X).held
        courtesy.network_changed()
        assert not courtesy.explain(X).held

    def test_what_it_is_given_holds(self, make):
        throttle = make(max_targets=2, max_opt_outs=1, hold_localhost=True, retry_budget=1, coalesce=True)
        assert throttle.policy is PLAIN
        fail(throttle, "http://localhost/", 3, sent=NOW - 1)
        assert failures(throttle, "http://localhost/") == 1
        for number in range(9):
            fail(throttle, f"http://{number}.example/", headers={"Retry-After": "9"})
        assert (len(throttle), throttle.evicted) == (2, 7)
        for number in range(3):
            fail(throttle, f"http://{number}.example/", headers={"Exponential-Throttling": "disable"}, status=200)
        assert throttle.opt_outs_evicted == 2

    @pytest.mark.parametrize("setting", ["max_targets", "max_opt_outs"])
    def test_no_room_is_refused_before_anything_is_made(self, path, setting):
        assert refused(path, **{setting: 0}) == f"{setting}: 0 leaves no room; try 10000"
        assert not path.exists()


class TestSharing:
    def test_three_failures_are_three_whoever_sees_them(self, make):
        throttles = [make() for _ in range(3)]
        for throttle in throttles:
            assert throttle.release_time(X, now=NOW) == ASAP
            fail(throttle)
        releases = [throttle.release_time(X, now=NOW) for throttle in throttles]
        assert releases == [pytest.approx(NOW + 0.98)] * 3
        assert [len(throttle) for throttle in throttles] == [1, 1, 1]

    def test_a_success_is_everybodys(self, make):
        one, other = make(), make()
        fail(one, times=2)
        fail(other, status=200)
        assert failures(one) == 1
        fail(other, times=2, status=200)
        assert (len(one), len(other)) == (0, 0)

    def test_what_a_response_says_is_known_to_all(self, make):
        one, other = make(), make()
        fail(one, "http://b.example/m/a", headers={"DDoS-Bucket-With": "/m", "Retry-After": "60"})
        fail(one, "http://c.example/", headers={"Exponential-Throttling": "disable"})
        assert other.release_time("http://b.example/m/z", now=NOW) == NOW + 60
        assert other.explain("http://c.example/", now=NOW).reason == "opted out"

    def test_a_broken_body(self, make):
        one, other = make(), make()
        fail(one, times=2)
        fail(one, status=200)
        other.malformed_body(X, 200, now=NOW)
        assert failures(one) == 3
        other.malformed_body("nonsense", 200, now=NOW)

    def test_a_clearing(self, make):
        one, other = make(), make()
        fail(one, times=9)
        other.clear_backoff(X, now=NOW)
        assert one.release_time(X, now=NOW) == ASAP
        assert failures(one) == 9

    def test_a_reset_keeps_what_opted_out(self, make):
        one, other = make(retry_budget=1), make(retry_budget=1)
        fail(one, times=9)
        fail(one, "http://c.example/", headers={"Exponential-Throttling": "disable"}, status=200)
        one.spend_retry(X)
        other.reset()
        assert (len(one), failures(one), one.retries_left(X)) == (0, 0, 1)
        assert one.explain("http://c.example/", now=NOW).reason == "opted out"

    def test_forgetting(self, make):
        one, other = make(), make()
        assert one.forget(now=NOW) == 0
        fail(one)
        fail(one, Y, now=NOW + 500)
        assert other.forget(now=NOW + 900) == 1
        assert one.forget(now=NOW + 900) == 0
        assert len(one) == 1

    def test_a_budget(self, make):
        one, other, another = make(retry_budget=2), make(retry_budget=2), make()
        assert one.spend_retry(X)
        assert other.retries_left(Y) == 1
        assert other.spend_retry(Y)
        assert not one.spend_retry(X)
        for _ in range(10):
            fail(other, status=200)
        assert one.spend_retry(X)
        assert another.spend_retry(X)
        assert one.spend_retry("nonsense")
        assert one.retries_left("nonsense") == float("inf")

    def test_a_gesture_is_for_those_who_see_it(self, make):
        one, other = make(), make()
        fail(one, times=5)
        one.user_gesture(now=NOW)
        assert one.release_time(X, now=NOW) == ASAP
        assert other.release_time(X, now=NOW) > NOW
        assert other.release_time(X, now=NOW, interactive=True) == ASAP

    def test_it_outlives_them_all(self, path):
        with SharedThrottle(path, PLAIN) as throttle:
            fail(throttle, times=5)
            release = throttle.release_time(X, now=NOW)
        assert [each.name for each in path.parent.iterdir()] == ["file"]
        with SharedThrottle(path, PLAIN) as throttle:
            assert throttle.release_time(X, now=NOW) == release

    def test_the_narrowest_bound_wins(self, make):
        wide, narrow = make(max_targets=500), make(max_targets=10)
        assert len(narrow) == 0
        for number in range(40):
            fail(wide, f"http://{number}.example/")
        assert len(narrow) == 10
        assert failures(narrow, "http://39.example/") == 1
        assert len(wide) == 40
        fail(narrow, "http://40.example/")
        assert len(narrow) == len(wide) <= 10
        assert failures(wide, "http://39.example/") == failures(wide, "http://40.example/") == 1

    def test_no_url_is_kept_at_its_length(self, make, path):
        one, other = make(), make()
        urls = [f"http://www.example.com/{'l' * 1_000_000}{end}" for end in "ab"]
        fail(one, urls[0], 3)
        assert other.release_time(urls[0], now=NOW) > NOW
        assert other.release_time(urls[1], now=NOW) == ASAP
        assert path.with_name("file-wal").stat().st_size < 200_000

    def test_a_draw_that_fails_has_changed_nothing(self, make):
        def draw():
            raise error

        one, other = make(draw=draw), make()
        fail(one, times=2)
        for error in (KeyError(), KeyboardInterrupt()):
            with pytest.raises(type(error)):
                fail(one)
            assert failures(other) == failures(one) == 2
        assert (one.trouble, one.postponed) == ("", 0)

    def test_any_number_may_make_it_at_once(self, tmp_path):
        for number in range(10):
            gate, made, refusals = threading.Barrier(6), [], []

            def make(path=tmp_path / f"file-{number}", gate=gate, made=made, refusals=refusals):
                gate.wait()
                try:
                    made.append(SharedThrottle(path))
                    fail(made[-1])
                except ConfigurationError as refusal:
                    refusals.append(refusal)

            threads = [threading.Thread(target=make) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert refusals == []
            assert [failures(throttle) for throttle in made] == [6] * 6
            for throttle in made:
                throttle.close()


class TestCost:
    """What is healthy asks nobody to wait: it goes on while another program has the file locked."""

    @pytest.mark.parametrize("fails_elsewhere", [False, True])
    def test_what_changes_nothing_takes_no_lock(self, make, path, monkeypatch, fails_elsewhere):
        throttle = make(retry_budget=2)
        if fails_elsewhere:
            fail(throttle, Y, 5)
        with locked(path):
            monkeypatch.setattr(throttle._file, "writing", lambda: pytest.fail("locked"))
            assert throttle.release_time(X, now=NOW) == ASAP
            fail(throttle, status=200, headers={"Date": "now", "Content-Type": "text/html"})
            fail(throttle, status=404)
            fail(throttle, status=502)
            fail(throttle, "http://localhost/", status=503)
            fail(throttle, "ftp://a.example/", status=503)
            throttle.clear_backoff(X.replace("www", "other"), now=NOW)
            throttle.user_gesture(now=0.0)
            assert throttle.retries_left(X) == 2
            assert not throttle.explain(X, now=NOW).held
            assert len(throttle) == fails_elsewhere
        assert (throttle.trouble, throttle.postponed) == ("", 0)

    def test_who_has_spent_all_takes_none(self, make, path):
        throttle = make(retry_budget=0)
        with locked(path):
            assert not throttle.spend_retry(X)
            assert throttle.forget(now=NOW) == 0
        assert throttle.trouble == ""

    def test_nothing_is_read_that_is_known(self, make, monkeypatch):
        throttle = make()
        fail(throttle, times=3)
        assert throttle.release_time(X, now=NOW) > NOW
        monkeypatch.setattr(throttle._file, "_transaction", lambda _: pytest.fail("read"))
        assert throttle.release_time(X, now=NOW) > NOW


class TestTrouble:
    def test_a_lock_is_waited_for_and_then_not(self, make, path, monkeypatch):
        monkeypatch.setattr(file_module, "PATIENCE", 0.05)
        one, other = make(), make()
        fail(one, times=2)
        with locked(path):
            start = time.monotonic()
            fail(one)
            assert time.monotonic() - start >= 0.05
            assert one.trouble == f"{path} is locked by another program; end that one"
            assert one.release_time(X, now=NOW) > NOW
            with monkeypatch.context() as patch:
                patch.setattr(file_module, "_patiently", lambda *_: pytest.fail("tried again at once"))
                fail(one)
                assert (failures(one), one.postponed) == (4, 2)
        assert failures(other) == 2

    def test_what_was_postponed_is_told_in_full(self, make, path, hasty):
        one, other = make(), make()
        fail(one, times=2)
        with locked(path):
            fail(one, times=3)
            assert (failures(one), one.postponed) == (5, 3)
        fail(other)
        assert failures(one) == failures(other) == 6
        assert (one.trouble, one.postponed, one.lost) == ("", 0, 0)

    def test_the_next_that_is_written_tells_it_too(self, make, path, hasty):
        one, other = make(), make()
        with locked(path):
            fail(one, times=3)
            fail(one, "http://c.example/", headers={"Exponential-Throttling": "disable"})
        fail(one)
        assert failures(other) == 4
        assert other.explain("http://c.example/", now=NOW).reason == "opted out"

    def test_more_than_there_is_room_for_is_lost(self, make, path, hasty, monkeypatch):
        monkeypatch.setattr(module, "_MOST_POSTPONED", 4)
        one, other = make(), make()
        with locked(path):
            fail(one, times=7)
            assert (failures(one), one.postponed, one.lost) == (7, 4, 3)
        assert failures(one) == failures(other) == 4

    def test_one_that_cannot_be_opened(self, make, path, hasty):
        one = make()
        with stranger(path) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN IMMEDIATE")
            assert one.release_time(X, now=NOW) == ASAP
            assert "locked by another program" in one.trouble
            fail(one, times=3)
            assert one.release_time(X, now=NOW) > NOW
        assert failures(one) == 3
        assert one.trouble == ""

    def test_a_disk_that_is_full(self, make, path, hasty):
        one, other = make(), make()
        fail(one)
        connection = one._file._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        urls = [f"http://{'h' * 200}.example/{'l' * 900}{number}" for number in range(30)]
        troubles = set()
        for url in urls:
            fail(one, url)
            troubles.add(one.trouble)
        assert troubles == {"", f"{path} has no room to grow on its disk; make some"}
        assert [failures(one, url) for url in urls] == [1] * 30
        assert [failures(other, url) for url in urls] == [1] * 30

    def test_what_was_done_before_it_failed_is_done_once(self, make, path, monkeypatch):
        one, other = make(), make()
        fail(one, times=2)

        def full(*_):
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(one._file, "write", full)
            fail(one)
            assert (failures(one), failures(other), one.postponed) == (3, 2, 1)
            assert one.trouble == f"{path} cannot be used (disk I/O error); choose a path on a local disk"
        monkeypatch.setattr(one, "_rest_until", ASAP)
        assert failures(one) == failures(other) == 3

    def test_damage_is_told_and_mended_by_deleting(self, make, path, hasty):
        one, other = make(), make()
        fail(one, times=3)
        for throttle in (one, other):
            assert len(throttle) == 1
            throttle._file.close()
        path.write_bytes(os.urandom(8_192))
        for throttle in (one, other):
            assert throttle.release_time(X, now=NOW) > NOW
            assert throttle.trouble == f"{path} is no SQLite database; choose another path, or delete the file"
        fail(other)
        assert failures(other) == 4
        path.unlink()
        assert failures(other) == 1, "what was in the file is forgotten, what was told since is not"
        assert failures(one) == 1
        assert (one.trouble, other.trouble) == ("", "")

    def test_a_state_that_is_gone(self, make, path, hasty):
        one = make()
        fail(one, times=3)
        with stranger(path) as other:
            other.execute("DELETE FROM state")
        assert one.release_time(X, now=NOW) > NOW
        assert "its state is not that of a throttle" in one.trouble

    def test_rows_that_make_no_sense_hold_nobody(self, make, path):
        one = make()
        fail(one, times=3)
        with stranger(path) as other:
            other.execute("UPDATE kept SET count = 'many', change = 99")
            other.execute("INSERT INTO kept VALUES (7, 'x', 98, 0, 0, 0, 0)")
            other.execute("INSERT INTO log VALUES (4611686018427387000, 0, 'x')")
        assert one.release_time(X, now=NOW) == ASAP
        fail(one)
        assert failures(one) == 1


class TestMoving:
    def test_a_deleted_file_is_noticed_before_writing(self, make, path):
        one, other = make(), make()
        fail(one, times=3)
        assert failures(other) == 3
        for each in path.parent.iterdir():
            each.unlink()
        fail(other)
        assert (failures(other), failures(make())) == (1, 1)

    def test_and_in_time_by_who_only_asks(self, make, path, monkeypatch):
        one = make()
        fail(one, times=3)
        for each in path.parent.iterdir():
            each.unlink()
        assert one.release_time(X, now=NOW) > NOW, "it is not looked for each time"
        monkeypatch.setattr(one, "_look_at", ASAP)
        assert one.release_time(X, now=NOW) == ASAP
        assert one.trouble == ""

    def test_a_folder_that_is_gone_is_trouble(self, tmp_path, hasty):
        folder = tmp_path / "folder"
        folder.mkdir()
        with SharedThrottle(folder / "file") as throttle:
            fail(throttle, times=3)
            for each in folder.iterdir():
                each.unlink()
            folder.rmdir()
            assert throttle.release_time(X, now=NOW) > NOW
            assert throttle.trouble.endswith(f"there is no folder {folder}; create it")
            fail(throttle)
            folder.mkdir()
            assert failures(throttle) == 1


class TestClosing:
    def test_it_tells_what_it_has_not_told(self, make, path, monkeypatch):
        monkeypatch.setattr(file_module, "PATIENCE", 0.0)
        one = make()
        with locked(path):
            fail(one, times=3)
        one.close()
        assert (one.postponed, one.lost) == (0, 0)
        assert failures(make()) == 3

    def test_or_cannot(self, make, path, hasty):
        one = make()
        with locked(path):
            fail(one, times=3)
            one.close()
        assert (one.postponed, one.lost) == (0, 3)
        assert failures(make()) == 0

    def test_after_it_everybody_goes_on_alone(self, make, path):
        one, other = make(), make()
        fail(one, times=2)
        one.close()
        one.close()
        fail(one)
        assert (failures(one), failures(other), one.lost, one.postponed) == (3, 2, 1, 0)
        assert one.trouble == f"{path} is not used any more: this throttle was closed"
        one.reset()
        assert one.forget(now=NOW) == 0

    def test_nothing_is_open_before_it_is_used(self, make, path):
        make()
        assert [each.name for each in path.parent.iterdir()] == ["file"]


class TestRefusals:
    def test_a_path_that_cannot_be(self, tmp_path):
        said = refused(tmp_path / "no" / "file")
        assert said == f"{tmp_path}/no/file cannot be opened, since there is no folder {tmp_path}/no; create it"
        assert "null" in refused(str(tmp_path / "a\0b"))

    def test_what_is_something_else(self, path):
        path.write_bytes(b"something else")
        assert refused(path) == f"{path} is no SQLite database; choose another path, or delete the file"
        assert path.read_bytes() == b"something else"

    def test_one_that_is_locked_at_the_start(self, path, make, monkeypatch):
        make()
        monkeypatch.setattr(file_module, "OPENING", 0.0)
        with locked(path):
            assert refused(path) == f"{path} is locked by another program; end that one"

    def test_a_path_is_text_or_a_path(self, path):
        SharedThrottle(str(path)).close()
        SharedThrottle(path).close()
        with pytest.raises(TypeError):
            SharedThrottle(7)

    def test_a_disk_that_is_full(self, tmp_path):
        said = elsewhere(tmp_path / "file", "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))")
        assert said.startswith(f"{tmp_path}/file ")
        assert "no room" in said or "cannot be used" in said

    @pytest.mark.parametrize(("folder_mode", "is_there"), [(0o777, True), (0o755, True), (0o755, False)])
    def test_what_may_not_be_written(self, folder_mode, is_there):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = folder / "file"
            if is_there:
                SharedThrottle(path).close()
                path.chmod(0o444)
            folder.chmod(folder_mode if os.geteuid() == 0 else folder_mode & 0o577)
            # Whoever may do everything gives that up.
            said = elsewhere(path, "os.geteuid() or (os.setgroups([]), os.setuid(65534))")
            folder.chmod(0o700)
        what, next_one = said.removeprefix(f"{path} ").split("; ")
        assert what in {"may not be written", "cannot be opened"}
        assert next_one == "let this program write it and its folder, or choose another path\n"


class TestForking:
    SCRIPT = """
import os, sys, threading
from headgate.agent import SharedThrottle

X = "http://www.example.com/x"
throttle = SharedThrottle(sys.argv[1])
def fail(times):
    for _ in range(times):
        throttle.response_received(X, 503, {}, now=9.0)
fail(10)
stop = threading.Event()
def ask():
    while not stop.is_set():
        fail(1)
asking = [threading.Thread(target=ask) for _ in range(2)]
for thread in asking:
    thread.start()
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        before = throttle.explain(X, now=9.0).failures
        fail(10)
        ok = throttle.explain(X, now=9.0).failures >= before + 10 and not throttle.trouble and not throttle.postponed
        throttle.close()
        os._exit(0 if ok else 1)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
stop.set()
for thread in asking:
    thread.join()
before = throttle.explain(X, now=9.0).failures
fail(10)
assert throttle.explain(X, now=9.0).failures == before + 10 >= 100, before
assert (throttle.trouble, throttle.postponed, throttle.lost) == ("", 0, 0)
throttle.close()
sys.exit(any(codes))
"""

    def test_both_sides_go_on_sharing(self, path):
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", self.SCRIPT, path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        with stranger(path) as other:
            assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    def test_what_the_parent_has_not_told_is_not_told_twice(self, make, path, hasty):
        one, other = make(), make()
        fail(one)
        with locked(path):
            fail(one, times=3)
            one._pause()
            one._resume(is_child=True)
            assert one.postponed == 0
        assert failures(one) == failures(other) == 1

    def test_a_fork_nobody_told_of_goes_on_alone(self, make, path, monkeypatch):
        one, other = make(), make()
        fail(one, times=2)
        monkeypatch.setattr(file_module.os, "getpid", lambda: -1)
        one._resume(is_child=True)
        fail(one)
        assert (failures(one), one.lost, one.postponed) == (3, 1, 0)
        assert one.trouble == f"{path} was in use when this process was forked; use it after the fork only"
        one._pause()
        one._resume(is_child=False)
        one.close()
        with pytest.raises(Forked):
            one._file.close()
        monkeypatch.undo()
        assert failures(other) == 2
        one._file.close()

    @pytest.mark.parametrize("is_child", [False, True])
    def test_who_is_busy_for_too_long_is_not_waited_for(self, make, monkeypatch, is_child):
        monkeypatch.setattr(module, "PATIENCE", 0.0)
        one = make()
        fail(one)
        with one._lock:
            if is_child:  # where nobody will ever finish what another thread had begun
                one._store.clear()
            one._pause()
            one._resume(is_child)
        assert failures(one) == 1
        fail(one)
        assert failures(one) == 2
