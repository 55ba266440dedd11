import sqlite3
from contextlib import closing, contextmanager

import pytest

from headgate.agent import shared_file as module
from headgate.agent.shared_database import open_database
from headgate.agent.shared_file import News, ThrottleFile
from headgate.errors import ConfigurationError
from headgate.release import NEVER
from headgate.throttle import Policy
from headgate.throttle.entry import (
    BUCKET,
    BUDGET,
    OPT_OUT,
    TARGET,
    Cleared,
    Declared,
    EntryKey,
    OptedOut,
    ResponseOutcome,
    ResponseReceived,
    RetryTokens,
    ThrottleEntry,
)

ORIGIN = "http://www.example.com"
NOW = 1_000.0
NOTHING = News(is_whole=False, rows=[])


def at(path, kind=TARGET, origin=ORIGIN):
    return EntryKey(kind, origin, path)


def failure(now=NOW, **values):
    return ResponseReceived(now=now, outcome=ResponseOutcome.FAILURE, **values)


def hold(seconds, now=NOW):
    return ResponseReceived(now=now, outcome=ResponseOutcome.NEITHER, retry_after=now + seconds)


def declare(now=NOW, **values):
    return Declared(now=now, start=ThrottleEntry(now, **values))


SUCCESS = ResponseReceived(now=NOW, outcome=ResponseOutcome.SUCCESS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def make(path):
    """Return the function that makes one more user of the file, who has read what is in it."""
    made = []

    def one(most=1_000):
        made.append(ThrottleFile(path, Policy(jitter_factor=0), max_targets=most, max_opt_outs=most))
        made[-1].exchange()
        return made[-1]

    yield one
    for each in made:
        each.close()


@contextmanager
def other_program(path):
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        yield connection


def write(file, changes, **more):
    """Exchange changes by key, in their order."""
    return file.exchange([(key, change) for key, each in changes.items() for change in each], **more)


def counts(news):
    return {key.path: entry and entry.count for key, entry in news.rows}


def stored(path):
    """Return what a process that comes later finds."""
    file = ThrottleFile(path, Policy(), max_targets=1_000_000, max_opt_outs=1_000_000)
    with closing(file):
        news = file.exchange()
    assert news.is_whole
    return dict(news.rows)


class TestOpening:
    def test_close_leaves_nothing_open(self, path):
        file = ThrottleFile(path, Policy(), max_targets=1, max_opt_outs=1)
        file.open()
        file.close()
        assert [each.name for each in path.parent.iterdir()] == ["file"]

    def test_calls_wait_longer_for_a_lock_until_close(self, path, monkeypatch):
        timeouts = []

        def opened(path, *, timeout):
            timeouts.append(timeout)
            return open_database(path, timeout=timeout)

        monkeypatch.setattr(module, "open_database", opened)
        file = ThrottleFile(path, Policy(), max_targets=1, max_opt_outs=1)
        with closing(file):
            file.open()
            file.exchange()
            file.close()
            file.exchange()
        assert timeouts == [5.0, 0.25]


class TestExchanging:
    def test_a_change_is_read_once_by_each_process(self, make):
        one, other = make(), make()
        expected = ThrottleEntry(NOW, 1, failed=NOW, noted=NOW, kind=TARGET, origin=ORIGIN, path="/a")
        assert write(one, {at("/a"): [failure()]}) == News(False, [(at("/a"), expected)])
        assert other.exchange() == News(False, [(at("/a"), expected)])
        assert one.exchange() == other.exchange() == NOTHING

    def test_changes_without_effect_are_not_written(self, make):
        one, other = make(), make()
        assert write(one, {at("/a"): [SUCCESS], at("/b"): [Cleared(now=NOW, until=NOW)]}) == NOTHING
        assert other.exchange() == NOTHING

    def test_dropped_entries_are_dropped_by_all(self, make):
        one, other = make(), make()
        write(one, {at("/a"): [failure()]})
        write(other, {at("/a"): [SUCCESS, SUCCESS]})
        assert one.exchange().rows == [(at("/a"), None)]
        assert stored(one.path) == {}
        assert counts(write(one, {at("/a"): [failure()]})) == {"/a": 1}

    def test_entries_of_all_kinds_are_stored_unchanged(self, make, path):
        changes = {
            at("/a"): [hold(NEVER)],
            at("/m", BUCKET): [declare(count=4, retry_after=NOW + 9)],
            at("", OPT_OUT, "a.example"): [OptedOut()],
            at("", BUDGET): [RetryTokens(shares=-7, full=20)],
        }
        written = write(make(), changes)
        assert dict(written.rows) == stored(path)
        assert [entry.count for _, entry in written.rows] == [-1, 4, -1, 13]

    def test_a_reset_keeps_opt_outs_and_applies_to_all_processes(self, make, path):
        one, other = make(), make()
        out = at("", OPT_OUT, "a.example")
        write(one, {at("/a"): [failure()], out: [OptedOut()], at("", BUDGET): [RetryTokens(shares=-7, full=20)]})
        news = write(other, {at("/b"): [failure()]}, reset=True)
        assert (news.is_whole, [key for key, _ in news.rows]) == (True, [out, at("/b")])
        assert one.exchange() == news
        assert one.exchange() == other.exchange() == NOTHING
        assert write(other, {}, reset=True).rows == one.exchange().rows == news.rows[:1]

    def test_a_failed_commit_changes_nothing(self, make, path):
        one, other = make(), make()
        with pytest.raises(OverflowError):
            write(one, {at("/a"): [failure()], at("/b", BUDGET): [RetryTokens(shares=-7, full=2**80)]})
        assert other.exchange() == NOTHING
        assert counts(write(one, {at("/a"): [failure()]})) == {"/a": 1}

    def test_a_reader_that_is_far_behind_reads_everything(self, make, monkeypatch):
        monkeypatch.setattr(module, "_MAX_BEHIND", 10)
        monkeypatch.setattr(module, "_TRIM_INTERVAL", 5)
        one, behind, abreast = make(), make(), make()
        write(one, {at("/gone"): [failure()], at("/kept"): [failure()]})
        behind.exchange()
        write(one, {at("/gone"): [SUCCESS, SUCCESS]})
        for _ in range(20):
            write(one, {at("/a"): [failure()]})
            assert not abreast.exchange().is_whole
        news = behind.exchange()
        assert (news.is_whole, counts(news)) == (True, {"/kept": 1, "/a": 20})
        with other_program(one.path) as other:
            assert other.execute("SELECT count(*) FROM entries WHERE count IS NULL").fetchone() == (0,)

    def test_late_changes_move_no_hold_back(self, make):
        one, late = make(), make()
        write(one, {at("/a"): [hold(600.0)]})
        (found,) = write(late, {at("/a"): [failure(NOW - 3_599)]}).rows
        assert (found[1].retry_after, found[1].count) == (NOW + 600, 1)

    def test_a_clock_that_was_set_back_far_moves_a_hold_back(self, make):
        one = make()
        write(one, {at("/a"): [hold(600.0)]})
        (found,) = write(one, {at("/a"): [failure(NOW - 1e6)]}).rows
        assert found[1].retry_after == NOW - 1e6 + 600


class TestBuckets:
    def test_a_new_bucket_includes_counts_of_other_processes(self, make, path):
        one, other = make(), make()
        write(one, {at("/m/a"): [failure()] * 5, at("/m"): [hold(9)], at("/mm"): [failure()], at("/m~"): [failure()]})
        news = write(other, {at("/m", BUCKET): [declare(), failure()]})
        assert news.rows[-1][1].count == 6
        found = stored(path)
        assert sorted(key.path for key in found) == ["/m", "/mm", "/m~"]
        assert found[at("/m", BUCKET)].count == 6
        assert found[at("/m", BUCKET)].retry_after == NOW + 9

    def test_a_change_of_a_target_counts_in_a_bucket_of_another_process(self, make, path):
        one, other = make(), make()
        write(one, {at("/m", BUCKET): [declare()], at("/", BUCKET): [declare()]})
        news = write(other, {at("/m/a"): [failure()], at("/x"): [failure(), failure()]})
        assert news.rows[:2] == [(at("/m/a"), None), (at("/x"), None)]
        assert {key.path: entry.count for key, entry in stored(path).items()} == {"/m": 1, "/": 2}

    def test_a_new_bucket_starts_with_a_wider_bucket_of_another_process(self, make, path):
        one, other = make(), make()
        write(one, {at("/", BUCKET): [declare(), hold(99)]})
        write(other, {at("/m", BUCKET): [declare()]})
        assert stored(path)[at("/m", BUCKET)].retry_after == NOW + 99

    def test_a_known_narrower_bucket_is_not_changed(self, make, path):
        one = make()
        write(one, {at("/m", BUCKET): [declare()]})
        write(one, {at("/", BUCKET): [declare(), hold(99)]})
        assert stored(path)[at("/m", BUCKET)].retry_after < NOW

    @pytest.mark.parametrize("at_once", [True, False])
    def test_a_narrower_bucket_that_this_process_declared_is_not_changed(self, make, path, at_once):
        one, changes = make(), {at("/m", BUCKET): [declare()], at("/", BUCKET): [declare(), hold(99)]}
        if at_once:
            write(one, changes)
        else:
            for key, each in changes.items():
                write(one, {key: each})
        assert stored(path)[at("/m", BUCKET)].retry_after < NOW

    def test_an_unknown_narrower_bucket_takes_over_the_hold(self, make, path):
        one, other = make(), make()
        write(one, {at("/m", BUCKET): [declare()]})
        write(other, {at("/", BUCKET): [declare(), hold(99)]})
        assert stored(path)[at("/m", BUCKET)].retry_after == NOW + 99

    def test_an_expired_bucket_holds_no_targets(self, make, path):
        write(make(), {at("/m", BUCKET): [declare()]})
        write(make(), {at("/m/a"): [failure(NOW + 120)]})
        assert at("/m/a") in stored(path)


class TestBounds:
    @pytest.mark.parametrize("most", [1, 10, 100])
    def test_each_kind_has_its_own_limit(self, make, path, most):
        one = make(most)
        for number in range(3 * most):
            write(
                one,
                {
                    at(f"/{number}"): [failure()],
                    at("", OPT_OUT, f"{number}.example"): [OptedOut()],
                    at("", BUDGET, f"http://{number}.example"): [RetryTokens(shares=-7, full=20)],
                },
            )
            kinds = [key.kind for key in stored(path)]
            assert max(kinds.count(TARGET), kinds.count(OPT_OUT), kinds.count(BUDGET)) <= most
        assert len(kinds) >= 2 * most

    def test_held_rows_are_deleted_last_and_failing_ones_before_them(self, make, path):
        one = make(16)
        write(one, {at(f"/held/{number}"): [hold(99)] for number in range(6)})
        write(one, {at(f"/failing/{number}"): [failure(), failure()] for number in range(5)})
        write(one, {at(f"/healthy/{number}"): [failure(), SUCCESS] for number in range(5)})
        write(one, {at("/held/6"): [hold(99)]})
        left = [key.path.split("/")[1] for key in stored(path)]
        assert (left.count("held"), left.count("failing"), left.count("healthy")) == (7, 5, 3)

    def test_each_process_applies_its_own_limit(self, make, path):
        wide, narrow = make(1_000), make(10)
        write(wide, {at(f"/{number}"): [failure()] for number in range(40)})
        narrow.exchange()
        assert len(stored(path)) == 40
        write(narrow, {at("/new"): [failure()]})
        assert len(stored(path)) <= 10
        assert at("/new") in stored(path)


class TestWhatIsBelieved:
    """The file may have been changed by another program."""

    ROW = (1, 0, ORIGIN, "/a", 5, NOW, NOW, NOW, NOW)

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            (1, 7), (1, "x"), (2, b"x"), (3, 8), (3, ""), (3, "a"), (4, "many"), (4, -2), (4, 2**40), (4, 1.5),
            (5, "x"), (5, None), (5, NEVER), (6, None), (7, NEVER), (7, b""), (8, NEVER), (8, None),
        ],
    )  # fmt: skip
    def test_an_invalid_row_is_ignored(self, make, path, column, value):
        one = make()
        row = list(self.ROW)
        row[column] = value
        with other_program(path) as other:
            other.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        assert all(entry is None for _, entry in one.exchange().rows)
        assert counts(write(one, {at("/a"): [failure()]}))["/a"] == 1

    def test_a_valid_row_is_read(self, make, path):
        one = make()
        with other_program(path) as other:
            other.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self.ROW)
        assert counts(one.exchange()) == {"/a": 5}

    @pytest.mark.parametrize("path_", ["", "/x", 5])
    def test_a_bucket_with_an_invalid_path_is_ignored(self, make, path, path_):
        one = make()
        with other_program(path) as other:
            other.execute("INSERT INTO entries VALUES (1, 1, ?, ?, 5, 2000.0, 2000.0, 2000.0, 2000.0)", (ORIGIN, path_))
        assert counts(write(one, {at("/a"): [failure()]}))["/a"] == 1

    def test_an_invalid_row_is_not_added_to_a_bucket(self, make, path):
        one = make()
        with other_program(path) as other:
            other.execute("INSERT INTO entries VALUES (1, 0, ?, '/m/a', 'many', 1e9, 1e9, 1e9, 1e9)", (ORIGIN,))
        write(one, {at("/m", BUCKET): [declare(), failure()]})
        assert stored(path)[at("/m", BUCKET)].count == 1

    def test_a_missing_state_is_an_error(self, make, path):
        one = make()
        with other_program(path) as other:
            other.execute("DELETE FROM state")
        with pytest.raises(sqlite3.DatabaseError, match=r"^its state is missing$"):
            one.exchange()


class TestReplacing:
    def test_a_deleted_file_is_noticed_before_writing(self, make, path):
        one, other = make(), make()
        write(one, {at("/a"): [failure()]})
        other.exchange()
        for each in path.parent.iterdir():
            each.unlink()
        news = write(other, {at("/b"): [failure()]})
        assert (news.is_whole, counts(news)) == (True, {"/b": 1})
        assert counts(one.exchange()) == {"/b": 1}

    def test_a_deleted_file_is_noticed_without_writing(self, make, path):
        one = make()
        write(one, {at("/a"): [failure()]})
        for each in path.parent.iterdir():
            each.unlink()
        assert one.exchange() == News(True, [])

    def test_a_file_replaced_at_the_start_of_a_transaction_is_not_written(self, make, path, monkeypatch):
        one, begin = make(), ThrottleFile._opened
        write(one, {at("/a"): [failure()]})

        def replaced(self):
            connection = begin(self)
            monkeypatch.undo()
            for each in path.parent.iterdir():
                each.unlink()
            return connection

        monkeypatch.setattr(ThrottleFile, "_opened", replaced)
        assert counts(write(one, {at("/b"): [failure()]})) == {"/b": 1}
        assert list(stored(path)) == [at("/b")]

    def test_reading_continues_after_close(self, make, path):
        one, other = make(), make()
        write(one, {at("/a"): [failure()]})
        one.close()
        one.close()
        write(other, {at("/b"): [failure()]})
        assert counts(one.exchange()) == {"/b": 1}

    def test_another_programs_database_is_refused(self, make, path):
        one = make()
        one.close()
        for each in path.parent.iterdir():
            each.unlink()
        with other_program(path) as other:
            other.execute("CREATE TABLE t (x)")
        with pytest.raises(ConfigurationError, match="another program"):
            one.exchange()

    def test_a_deleted_directory_is_an_error(self, tmp_path):
        folder = tmp_path / "folder"
        folder.mkdir()
        file = ThrottleFile(folder / "file", Policy(), max_targets=9, max_opt_outs=9)
        with closing(file):
            write(file, {at("/a"): [failure()]})
            for each in folder.iterdir():
                each.unlink()
            folder.rmdir()
            with pytest.raises(sqlite3.OperationalError, match="unable to open"):
                file.exchange()
            folder.mkdir()
            assert file.exchange() == News(True, [])


def test_a_full_disk_is_an_error_and_loses_nothing(make, path):
    one, other = make(), make()
    write(one, {at("/a"): [failure()]})
    (pages,) = one._connection.execute("PRAGMA page_count").fetchone()
    one._connection.execute(f"PRAGMA max_page_count = {pages}")
    changes = {at(f"/{'l' * 900}{number}"): [failure()] for number in range(30)}
    with pytest.raises(sqlite3.OperationalError, match="full"):
        write(one, changes)
    assert counts(other.exchange()) == {"/a": 1}
    one._connection.execute("PRAGMA max_page_count = 100000")
    assert len(write(one, changes).rows) == 30
    assert len(other.exchange().rows) == 30
