import inspect
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from headgate import agent
from headgate.advice import AdviceCache
from headgate.advice.fetching import AdviceResponse
from headgate.agent import Courtesy, RetryLater, SharedThrottle, shared_throttle
from headgate.agent.advice_client import AdviceClient
from headgate.errors import ConfigurationError
from headgate.release import ASAP
from headgate.throttle import Policy, Throttle

NOW = 1_763_683_200.0
X = "http://www.example.com/x"
Y = "http://www.example.com/y"
PLAIN = replace(Policy.draft(), jitter_factor=0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def make(path):
    """Return the function that makes one more throttle on the file, as another process has it."""
    made = []

    def one(policy=PLAIN, **settings):
        made.append(SharedThrottle(path, policy, **{"draw": lambda: 0.0, **settings}))
        return made[-1]

    yield one
    for each in made:
        each.close()


@pytest.fixture
def no_pause(monkeypatch):
    """Try a file that could not be used again at once, and wait for no lock."""
    monkeypatch.setattr(shared_throttle, "_RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(shared_throttle, "_BUSY_TIMEOUT", 0.0)


def fail(throttle, url=X, times=3, *, now=NOW, status=503, headers=()):
    for _ in range(times):
        throttle.response_received(url, status, headers, now=now)


def waits(throttle, url=X, *, now=NOW):
    return max(0.0, throttle.release_time(url, now=now) - now)


def refused(path, **settings):
    with pytest.raises(ConfigurationError) as refusal:
        SharedThrottle(path, **settings)
    return str(refusal.value)


def test_sqlite_is_imported_only_with_a_shared_throttle():
    script = (
        "import sys, headgate.agent as agent\n"
        "assert 'sqlite3' not in sys.modules\n"
        "agent.SharedThrottle\n"
        "assert 'sqlite3' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(AttributeError, match=r"^module 'headgate.agent' has no attribute 'Shared'$"):
        _ = agent.Shared


def test_it_takes_the_arguments_of_a_throttle(path):
    mine, its = (list(inspect.signature(each).parameters.values()) for each in (SharedThrottle, Throttle))
    assert [mine[0].name, *mine[1:]] == ["path", *its]
    throttle = SharedThrottle(path, PLAIN, max_targets=2, max_opt_outs=1, hold_localhost=True, retry_budget=1)
    assert (throttle.policy, throttle.retries_left(X)) == (PLAIN, 1)
    fail(throttle, "http://localhost/")
    assert waits(throttle, "http://localhost/") > 0
    throttle.close()


class TestSharing:
    def test_backoff_and_retry_after_hold_all(self, make):
        one, other = make(), make()
        fail(one, X + "?query")
        assert waits(other) == pytest.approx(0.98)
        fail(one, Y, 1, status=200, headers={"Retry-After": "60"})
        assert waits(other, Y) == 60
        assert waits(other, "http://www.example.com/z") == waits(other, "http://example.com/x") == 0
        assert waits(make(), Y) == 60
        assert len(other) == 0

    def test_holds_combine_with_max(self, make):
        one, other = make(), make()
        for throttle, seconds, expected in ((one, "60", 60), (other, "30", 60), (other, "90", 90)):
            fail(throttle, times=1, status=200, headers={"Retry-After": seconds})
            assert waits(one) == waits(other) == expected

    def test_counts_are_separate(self, make):
        one, other = make(), make()
        fail(one, times=2)
        fail(other, times=2)
        assert waits(one) == waits(other) == 0
        fail(one, times=1)
        assert waits(other) == pytest.approx(0.98)
        assert other.explain(X, now=NOW).failures == 2

    def test_buckets_hold_their_members_everywhere(self, make):
        one, other = make(), make()
        fail(one, "http://www.example.com/m/a", headers={"DDoS-Bucket-With": "/m"})
        held = [waits(other, f"http://www.example.com{path}") > 0 for path in ("/m", "/m/a", "/m/b/c", "/ma", "/*/m")]
        assert held == [True, True, True, False, False]
        assert waits(other, "http://example.com/m") == 0

    def test_malformed_bodies_are_shared(self, make):
        one, other = make(), make()
        for _ in range(3):
            fail(one, times=1, status=200)
            one.malformed_body(X, 200, now=NOW)
        assert waits(other) == pytest.approx(0.98)

    def test_a_released_hold_is_free(self, make):
        one, other = make(), make()
        fail(one)
        release = other.release_time(X, now=NOW)
        assert other.release_time(X, now=release) == ASAP
        assert other.explain(X, now=release).reason == "free"

    def test_explanation_names_a_hold_of_another_process(self, make):
        one, other = make(), make()
        fail(one, times=1, status=200, headers={"Retry-After": "60"})
        found = other.explain(X, now=NOW)
        assert (found.held, found.reason, found.release, found.failures) == (True, "shared", NOW + 60, 0)
        fail(other, times=1, status=200, headers={"Retry-After": "90"})
        assert other.explain(X, now=NOW).reason == "retry-after"
        assert one.explain(X, now=NOW).reason == "shared"

    def test_exceptions_hold_for_shared_holds_too(self, make):
        one, other = make(hold_localhost=True), make()
        fail(one)
        fail(one, "http://localhost/")
        assert waits(other, "http://localhost/") == 0
        assert other.release_time(X, now=NOW, interactive=True) == ASAP
        other.user_gesture(now=NOW)
        assert other.release_time(X, now=NOW) == ASAP
        assert not other.explain(X, now=NOW).held

    def test_urls_without_a_target_are_free(self, make):
        throttle = make()
        fail(throttle, "/x")
        throttle.malformed_body("/x", 200, now=NOW)
        assert throttle.release_time("/x", now=NOW) == ASAP
        assert throttle.explain("/x", now=NOW).reason == "no target"

    def test_a_courtesy_uses_it(self, make):
        one, other = (Courtesy(throttle=make(), clock=lambda: NOW) for _ in range(2))
        fail(one.throttle)
        assert other.explain(X).held
        with pytest.raises(RetryLater, match="/x is held by a server's answer to another process; retry at") as caught:
            other.attempt("GET", X).wait()
        assert caught.value.reason == "shared"
        one.throttle.reset()
        assert not one.explain(X).held
        assert not other.explain(X).held

    def test_threads_share_one(self, make):
        throttle, other = make(), make()
        errors = []

        def work(number):
            for step in range(50):
                fail(throttle, f"http://{number}.example/{step}", 1, headers={"Retry-After": "9"})
            errors.append(throttle.trouble)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert errors == [""] * 4
        assert all(waits(other, f"http://{number}.example/{step}") == 9 for number in range(4) for step in range(50))


class TestFile:
    def test_only_the_owner_may_read_it(self, make, path):
        make()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_holds_survive_and_closing_ends_the_sharing(self, make):
        one, other = make(), make()
        with one:
            fail(one)
        fail(other, Y)
        assert waits(one) == pytest.approx(0.98)
        assert waits(one, Y) == 0
        assert waits(make()) == pytest.approx(0.98)

    def test_number_of_rows_is_bounded(self, make, path, monkeypatch):
        monkeypatch.setattr(shared_throttle, "_TRIM_INTERVAL", 5)
        throttle = make(max_targets=10)
        for number in range(40):
            fail(throttle, f"http://{number}.example/", 1, headers={"Retry-After": str(100 + number)})
        with closing(sqlite3.connect(path)) as connection:
            releases = [release - NOW for (release,) in connection.execute("SELECT release FROM holds ORDER BY 1")]
        assert 10 <= len(releases) < 15
        assert releases == [139 - left for left in reversed(range(len(releases)))]

    @pytest.mark.parametrize("content", [b"short", b"not a database" * 100])
    def test_other_files_are_refused_and_left_alone(self, path, content):
        path.write_bytes(content)
        assert "database" in refused(path)
        assert path.read_bytes() == content

    def test_databases_of_others_are_refused(self, path):
        for statement in ("CREATE TABLE a (b)", "PRAGMA user_version = 2"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(statement)
            assert "was written by another program, or another version of headgate" in refused(path)
            path.unlink()

    def test_a_path_that_cannot_be_used_is_refused(self, tmp_path):
        for path in (None, 3):
            assert refused(path).startswith("path must be the path of a file that the processes share, got ")
        for path in (tmp_path, tmp_path / "missing" / "file"):
            assert refused(path).startswith(f"{path} cannot be used: ")

    @pytest.mark.parametrize("setting", ["max_targets", "max_opt_outs"])
    def test_invalid_bounds_are_refused_before_the_file_is_created(self, path, setting):
        assert refused(path, **{setting: 0}) == f"{setting} must be an integer of at least 1, got 0"
        assert not path.exists()

    def test_several_may_create_it_at_once(self, path):
        script = "import sys\nfrom headgate.agent import SharedThrottle\nSharedThrottle(sys.argv[1]).close()\n"
        command = [sys.executable, "-c", script, str(path)]
        processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
        assert [process.communicate(timeout=60)[1] for process in processes] == [b""] * 4


@pytest.mark.usefixtures("no_pause")
class TestTrouble:
    def test_a_locked_file_fails_no_request_and_is_written_later(self, make, path):
        one, other = make(), make()
        fail(one)
        with closing(sqlite3.connect(path, isolation_level=None)) as locking:
            locking.execute("BEGIN IMMEDIATE")
            fail(one, Y)
            assert one.trouble == f"{path} cannot be used now: database is locked"
            assert waits(one, Y) == pytest.approx(0.98)
            assert waits(other) == pytest.approx(0.98)  # reading needs no lock
            assert waits(other, Y) == 0
        fail(one, "http://other.example/", 1)
        assert (one.trouble, waits(other, Y)) == ("", pytest.approx(0.98))

    def test_a_file_in_trouble_is_not_tried_again_at_once(self, make, path, monkeypatch):
        monkeypatch.setattr(shared_throttle, "_RETRY_INTERVAL", 3600.0)
        one, other = make(), make()
        with closing(sqlite3.connect(path, isolation_level=None)) as locking:
            locking.execute("BEGIN IMMEDIATE")
            fail(one)
        fail(one, Y)
        assert "locked" in one.trouble
        assert waits(other, Y) == 0

    def test_a_deleted_file_is_replaced(self, make, path):
        one, other = make(), make()
        fail(one)
        for each in path.parent.iterdir():
            each.unlink()
        assert waits(other) == 0
        fail(one, Y)
        assert waits(other, Y) == pytest.approx(0.98)
        assert waits(one) == pytest.approx(0.98)

    def test_a_damaged_file_fails_no_request(self, make, path):
        one = make()
        fail(one)
        one._disconnect()
        path.write_bytes(b"damaged " * 1000)
        fail(one, Y)
        assert waits(one, Y) == pytest.approx(0.98)
        assert "cannot be used now: file is not a database" in one.trouble


class TestForks:
    def test_parent_and_child_go_on(self, make):
        throttle = make()
        fail(throttle)
        child = os.fork()
        if not child:
            fail(throttle, Y)
            os._exit(0 if waits(throttle) > 0 and not throttle.trouble else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert waits(throttle, Y) == pytest.approx(0.98)
        assert throttle.trouble == ""

    def test_a_child_of_another_fork_does_not_use_an_open_file(self, make, path):
        throttle, other = make(), make()
        fail(throttle)
        throttle._pid -= 1  # as after a fork that called no hooks
        fail(throttle, Y)
        assert throttle.trouble == f"{path} was in use when this process was forked"
        assert (waits(throttle, Y), waits(other, Y)) == (pytest.approx(0.98), 0)


ADVICE = AdviceResponse(200, [("Content-Type", "application/trafficadvice+json")], b"[]")


def advised(shared, clock=lambda: 1000.0, is_asked_to_sign=lambda *_: False):
    """Return what asks for the advice of one origin, and the reports of the fetches that it starts."""
    fetches = []
    client = AdviceClient(
        AdviceCache("ExampleBot"),
        clock=clock,
        on_advice=lambda advice: None,
        own_fields=lambda method, url: {},
        is_asked_to_sign=is_asked_to_sign,
        default=lambda request, report: fetches.append(report),
        shared=shared,
    )
    return lambda now: client.ask("https://example.com", now=now), fetches


def test_a_response_that_asks_for_a_signature_is_not_shared(tmp_path):
    with SharedThrottle(tmp_path / "file") as one, SharedThrottle(tmp_path / "file") as other:
        answers = iter([True, False])
        (ask, fetches), (ask_other, none) = advised(one, is_asked_to_sign=lambda *_: next(answers)), advised(other)
        ask(1000.0)
        fetches[0](AdviceResponse(403, [], None))  # and the first process fetches again
        fetches[1](ADVICE)
        ask_other(1000.0)
        assert (len(fetches), none) == (2, [])
        assert ask_other(1001.0).reason == ask(1001.0).reason != "there is no traffic advice: status 403"


def test_one_process_fetches_advice_for_all(tmp_path):
    now = [1000.0]
    with SharedThrottle(tmp_path / "file") as one, SharedThrottle(tmp_path / "file") as other:
        (ask, fetches), (ask_other, none) = advised(one, lambda: now[0]), advised(other, lambda: now[0])
        ask(now[0])
        assert ask_other(now[0]).finished.done()
        assert not ask_other(now[0]).is_under_way
        fetches[0](ADVICE)
        now[0] += 1
        for each in (ask, ask_other):
            each(now[0])
            assert each(now[0]).reason == ask(now[0]).reason
        assert (len(fetches), none) == (1, [])


@pytest.mark.parametrize(
    ("outcome", "seconds", "fetches"),
    [
        (ADVICE, 59, 0),
        (ADVICE, 61, 1),
        (ADVICE, -61, 1),  # the clock was set back
        (None, 1, 0),  # still under way
        (None, 8, 1),  # the process has ended
        (RuntimeError("of this process"), 1, 1),
        (ADVICE._replace(status=304, body=None), 1, 1),
        (ADVICE._replace(body=bytes(70_000)), 1, 1),
        (ADVICE._replace(status=0, body=None), 1, 0),
    ],
)
def test_a_shared_response_is_used_only_if_it_says_something_to_others(tmp_path, outcome, seconds, fetches):
    with SharedThrottle(tmp_path / "file") as one, SharedThrottle(tmp_path / "file") as other:
        ask, begun = advised(one)
        ask(1000.0)
        if outcome is not None:
            begun[0](outcome)
        ask_other, made = advised(other, lambda: 1000.0 + seconds)
        ask_other(1000.0 + seconds)
        assert len(made) == fetches
