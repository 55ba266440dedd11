import inspect
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest

from headgate import agent
from headgate.agent import Courtesy, SharedThrottle
from headgate.agent import shared_file as file_module
from headgate.errors import ConfigurationError
from headgate.release import ASAP
from headgate.throttle import Policy, Throttle

NOW = 1_763_683_200.0
X = "http://www.example.com/x"
Y = "http://www.example.com/y"
PLAIN = Policy(jitter_factor=0)
TIMEOUT = 30.0  # seconds; only ever reached by a failing test


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


def synchronize(*throttles):
    """Have all know what each of them knew."""
    for throttle in (*throttles, *throttles):
        assert throttle.synchronize(TIMEOUT), throttle.trouble


def fail(throttle, url=X, times=1, *, now=NOW, status=503, headers=(), **more):
    for _ in range(times):
        throttle.response_received(url, status, headers, now=now, **more)


def failures(throttle, url=X, *, now=NOW):
    return throttle.explain(url, now=now).failures


def refused(path, **settings):
    with pytest.raises(ConfigurationError) as refusal:
        SharedThrottle(path, **settings)
    return str(refusal.value)


def test_path_of_another_type_is_refused():
    for path in (None, 3, PLAIN):
        assert refused(path).startswith("path must be the path of a file that the processes share, got ")


def test_name_of_a_policy_is_refused(tmp_path):
    assert (
        refused(tmp_path / "x", policy="chromium")
        == "policy must be a Policy, such as Policy.chromium(), got 'chromium'"
    )


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
    def test_sqlite_is_imported_only_with_a_shared_throttle(self):
        script = (
            "import sys, headgate.agent as agent\n"
            "assert 'sqlite3' not in sys.modules\n"
            "assert 'SharedThrottle' in agent.__all__\n"
            "agent.SharedThrottle\n"
            "assert 'sqlite3' in sys.modules\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    def test_any_other_name_is_an_error(self):
        with pytest.raises(AttributeError, match=r"^module 'headgate.agent' has no attribute 'Shared'$"):
            _ = agent.Shared


class TestIsAThrottle:
    def test_it_takes_the_arguments_of_a_throttle(self):
        mine, its = (list(inspect.signature(each).parameters.values()) for each in (SharedThrottle, Throttle))
        assert its[-1].name == "store"
        assert [mine[0].name, *mine[1:]] == ["path", *its[:-1]]

    def test_a_courtesy_uses_it(self, make):
        throttle = make()
        courtesy = Courtesy(throttle=throttle, clock=lambda: NOW)
        fail(throttle, times=3)
        assert courtesy.explain(X).held
        courtesy.network_changed()
        assert not courtesy.explain(X).held

    def test_its_settings_apply(self, make):
        throttle = make(max_targets=2, max_opt_outs=1, hold_localhost=True, retry_budget=1, coalesce=True)
        assert throttle.policy is PLAIN
        assert throttle.retries_left(X) == 1
        fail(throttle, "http://localhost/", 3, sent=NOW - 1)
        assert failures(throttle, "http://localhost/") == 1
        for number in range(9):
            fail(throttle, f"http://{number}.example/", headers={"Retry-After": "9"})
        assert len(throttle) == 2
        assert throttle.evicted >= 7
        for number in range(3):
            fail(throttle, f"http://{number}.example/", headers={"Exponential-Throttling": "disable"}, status=200)
        assert throttle.opt_outs_evicted >= 2

    @pytest.mark.parametrize("setting", ["max_targets", "max_opt_outs"])
    def test_invalid_bounds_are_refused_before_the_file_is_created(self, path, setting):
        assert refused(path, **{setting: 0}) == f"{setting} must be an integer of at least 1, got 0"
        assert not path.exists()


class TestSharing:
    def test_malformed_bodies_are_shared(self, make):
        one, other = make(), make()
        fail(one, times=2)
        fail(one, status=200)
        synchronize(one, other)
        other.malformed_body(X, 200, now=NOW)
        other.malformed_body("nonsense", 200, now=NOW)
        synchronize(other, one)
        assert failures(one) == 3

    def test_a_cleared_backoff_is_shared(self, make):
        one, other = make(), make()
        fail(one, times=9)
        synchronize(one, other)
        other.clear_backoff(X, now=NOW)
        synchronize(other, one)
        assert one.release_time(X, now=NOW) == ASAP
        assert failures(one) == 9

    def test_a_budget_is_shared(self, make):
        one, other, another = make(retry_budget=2), make(retry_budget=2), make()
        assert one.spend_retry(X)
        synchronize(one, other)
        assert other.retries_left(Y) == 1
        assert other.spend_retry(Y)
        synchronize(other, one)
        assert not one.spend_retry(X)
        for _ in range(10):
            fail(other, status=200)
        synchronize(other, one)
        assert one.spend_retry(X)
        assert another.spend_retry(X)

    def test_a_hold_outlives_a_bucket_that_only_one_process_has_forgotten(self, make):
        one, other = make(), make()
        fail(one, X, headers={"DDoS-Bucket-With": "/x"})
        fail(one, X, status=200)  # nothing holds the bucket any more, so it expires after a lifetime
        synchronize(one, other)
        just_before, after = NOW + PLAIN.entry_lifetime - 0.5, NOW + PLAIN.entry_lifetime + 2
        fail(one, X, now=after, headers={"Retry-After": "5"})
        assert one.synchronize(TIMEOUT)
        fail(other, X, now=just_before, headers={"DDoS-Bucket-With": "/", "Retry-After": "7"})
        synchronize(one, other)
        assert {each.explain(X, now=after).retry_after for each in (one, other)} == {after + 5}

    def test_a_user_gesture_is_not_shared(self, make):
        one, other = make(), make()
        fail(one, times=5)
        synchronize(one, other)
        one.user_gesture(now=NOW)
        synchronize(one, other)
        assert one.release_time(X, now=NOW) == ASAP
        assert other.release_time(X, now=NOW) > NOW
        assert other.release_time(X, now=NOW, interactive=True) == ASAP

    def test_the_file_outlives_all_processes(self, path):
        with SharedThrottle(path, PLAIN) as throttle:
            fail(throttle, times=5)
            release = throttle.release_time(X, now=NOW)
        assert [each.name for each in path.parent.iterdir()] == ["file"]
        with SharedThrottle(path, PLAIN) as throttle:
            assert throttle.release_time(X, now=NOW) == release

    def test_long_urls_are_shortened(self, make, path):
        one, other = make(), make()
        urls = [f"http://www.example.com/{'l' * 1_000_000}{end}" for end in "ab"]
        fail(one, urls[0], 3)
        synchronize(one, other)
        assert other.release_time(urls[0], now=NOW) > NOW
        assert other.release_time(urls[1], now=NOW) == ASAP
        assert path.with_name("file-wal").stat().st_size < 200_000

    def test_a_draw_that_fails_changes_nothing(self, make):
        def draw():
            raise error

        one, other = make(draw=draw), make()
        fail(other, times=2)
        synchronize(other, one)
        for error in (KeyError(), KeyboardInterrupt()):
            with pytest.raises(type(error)):
                fail(one)
            synchronize(one, other)
            assert failures(other) == failures(one) == 2
        assert (one.trouble, one.postponed) == ("", 0)

    def test_threads_can_create_it_at_once(self, tmp_path):
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
            synchronize(*made)
            assert [failures(throttle) for throttle in made] == [6] * 6
            for throttle in made:
                throttle.close()

    def test_changes_that_could_not_be_shared_are_reported(self, make, path):
        one, other = make(), make()
        fail(one)
        one.close()
        fail(one)
        assert (one.postponed, one.lost) == (0, 1)
        assert one.trouble == f"{path} is not used any more, since this throttle was closed"
        synchronize(other)
        assert (failures(one), failures(other)) == (2, 1)


class TestClocks:
    """Processes have a clock in common; where they do not, no hold is longer than it was to be.

    One that is ahead by a minute or more looks like one that was ahead of a clock that was set back since.
    """

    def test_a_hold_by_a_clock_ahead_keeps_its_length(self, make):
        ahead, behind = make(), make()
        fail(ahead, times=3, now=NOW + 3_000)
        fail(ahead, Y, headers={"Retry-After": "60"}, now=NOW + 3_000)
        synchronize(ahead, behind)
        assert behind.release_time(X, now=NOW) == pytest.approx(NOW + 0.98)
        assert behind.release_time(Y, now=NOW) == NOW + 60
        assert behind.release_time(Y, now=NOW + 60) == ASAP
        assert behind.clock_steps >= 1

    def test_a_response_after_a_set_back_clock_does_not_renew_holds(self, make):
        one, other = make(), make()
        fail(one, headers={"Retry-After": "60"})
        synchronize(one, other)
        now = NOW - 600
        for throttle in (one, other):
            assert throttle.release_time(X, now=now) == now + 60
        for _ in range(3):  # each has the file's row, which still has the instants of before, read again
            now += 60
            one.response_received(X, 200, {}, now=now)
            synchronize(one, other)
            assert (one.release_time(X, now=now), other.release_time(X, now=now)) == (ASAP, ASAP)

    def test_counts_of_a_clock_behind_add_up_and_shorten_no_hold(self, make):
        ahead, behind = make(), make()
        fail(ahead, times=9, now=NOW + 59)
        release = ahead.release_time(X, now=NOW + 59)
        synchronize(ahead, behind)
        fail(behind)
        synchronize(behind, ahead)
        assert failures(ahead, now=NOW + 59) == 10
        assert ahead.release_time(X, now=NOW + 59) >= release
        assert behind.release_time(X, now=NOW) - NOW <= PLAIN.maximum_backoff

    def test_counts_after_a_set_back_clock_add_up(self, make):
        ahead, behind = make(), make()
        fail(ahead, times=9, now=NOW + 3_000)
        synchronize(ahead, behind)
        fail(behind)
        synchronize(behind, ahead)
        assert failures(ahead, now=NOW) == failures(behind, now=NOW) == 10
        assert ahead.release_time(X, now=NOW) == behind.release_time(X, now=NOW) <= NOW + PLAIN.maximum_backoff

    def test_a_clock_ahead_ends_no_hold_that_lasts_by_it_too(self, make):
        ahead, behind = make(), make()
        fail(behind, headers={"Retry-After": "600"})
        synchronize(behind, ahead)
        fail(ahead, now=NOW + 100)
        synchronize(ahead, behind)
        assert ahead.release_time(X, now=NOW + 100) == NOW + 600
        assert behind.release_time(X, now=NOW) > NOW


class TestRefusals:
    def test_an_invalid_path_is_described(self, tmp_path):
        said = refused(tmp_path / "no" / "file")
        assert said == f"{tmp_path}/no/file cannot be opened, since {tmp_path}/no is not a directory; create it"
        assert "null" in refused(str(tmp_path / "a\0b"))

    def test_a_file_of_another_kind_is_described(self, path):
        path.write_bytes(b"something else")
        assert refused(path) == f"{path} is not an SQLite database; choose another path, or delete the file"
        assert path.read_bytes() == b"something else"

    def test_a_locked_file_at_the_start_is_described(self, path, make, monkeypatch):
        make()
        monkeypatch.setattr(file_module, "_OPEN_TIMEOUT", 0.0)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert refused(path) == f"{path} is locked by another program; wait for that program, or end it"

    def test_a_file_of_an_older_version_is_described(self, path):
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE kept (kind, name, change, count, backoff, retry_after, failed)")
            other.execute("PRAGMA application_id = 1214739560")
            other.execute("PRAGMA user_version = 1")
        assert refused(path) == (
            f"{path} was written by another version of headgate (schema 1, expected 2); choose another path, "
            "or delete the file while no program uses it"
        )

    def test_a_path_may_be_text(self, path):
        SharedThrottle(str(path)).close()
        SharedThrottle(path).close()

    def test_a_full_disk_is_described(self, tmp_path):
        said = elsewhere(tmp_path / "file", "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))")
        assert said.startswith(f"{tmp_path}/file ")
        assert "its disk is full" in said or "cannot be used" in said

    @pytest.mark.parametrize(("folder_mode", "is_there"), [(0o777, True), (0o755, True), (0o755, False)])
    def test_a_read_only_file_is_described(self, folder_mode, is_there):
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
        assert what in {"cannot be written", "cannot be opened"}
        assert next_one == "allow this program to write the file and its directory, or choose another path\n"


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
counts = []
def ask():
    while not stop.is_set():
        fail(100)
        counts.append(100)
        assert throttle.synchronize(60.0)
asking = [threading.Thread(target=ask) for _ in range(2)]
for thread in asking:
    thread.start()
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        fail(10)
        ok = throttle.synchronize(60.0) and not throttle.trouble
        throttle.close()
        os._exit(0 if ok and not throttle.lost else 1)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
stop.set()
for thread in asking:
    thread.join()
assert throttle.synchronize(60.0)
assert throttle.explain(X, now=9.0).failures == 10 + sum(counts) + 80, counts
assert (throttle.trouble, throttle.postponed, throttle.lost) == ("", 0, 0)
throttle.close()
sys.exit(any(codes))
"""

    def test_both_sides_go_on_sharing(self, path):
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", self.SCRIPT, path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
