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
    Entry,
    Key,
    OptedOut,
    Outcome,
    Response,
    RetryTokens,
)

ORIGIN = "http://www.example.com"
NOW = 1_000.0
NOTHING = News(is_whole=False, rows=[])


def at(path, kind=TARGET, origin=ORIGIN):
    return Key(kind, origin, path)


def failure(now=NOW, **values):
    return Response(now=now, outcome=Outcome.FAILURE, **values)


def hold(seconds, now=NOW):
    return Response(now=now, outcome=Outcome.NEITHER, retry_after=now + seconds)


def declare(now=NOW, **values):
    return Declared(now=now, start=Entry(now, **values))


SUCCESS = Response(now=NOW, outcome=Outcome.SUCCESS)


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
    def test_nothing_is_left_open_after_it_is_closed(self, path):
        file = ThrottleFile(path, Policy(), max_targets=1, max_opt_outs=1)
        file.open()
        file.close()
        assert [each.name for each in path.parent.iterdir()] == ["file"]

    def test_a_locked_file_is_refused(self, path, make, monkeypatch):
        make()
        monkeypatch.setattr(module, "_OPEN_TIMEOUT", 0.0)
        with other_program(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                ThrottleFile(path, Policy(), max_targets=1, max_opt_outs=1).open()

    def test_a_lock_is_waited_for_longer_until_it_is_closed(self, path, monkeypatch):
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
    def test_what_one_writes_both_read_once(self, make):
        one, other = make(), make()
        expected = Entry(NOW, 1, failed=NOW, noted=NOW, kind=TARGET, origin=ORIGIN, path="/a")
        assert write(one, {at("/a"): [failure()]}) == News(False, [(at("/a"), expected)])
        assert other.exchange() == News(False, [(at("/a"), expected)])
        assert one.exchange() == other.exchange() == NOTHING

    def test_changes_of_several_processes_add_up(self, make):
        one, other = make(), make()
        write(one, {at("/a"): [failure(), failure()]})
        found = write(other, {at("/a"): [failure()]})
        assert counts(found) == {"/a": 3}
        assert found.rows[0][1].backoff == pytest.approx(NOW + 0.98)
        assert counts(one.exchange()) == {"/a": 3}

    def test_nothing_is_written_that_changes_nothing(self, make):
        one, other = make(), make()
        assert write(one, {at("/a"): [SUCCESS], at("/b"): [Cleared(now=NOW, until=NOW)]}) == NOTHING
        assert other.exchange() == NOTHING

    def test_what_one_drops_the_others_drop(self, make):
        one, other = make(), make()
        write(one, {at("/a"): [failure()]})
        write(other, {at("/a"): [SUCCESS, SUCCESS]})
        assert one.exchange().rows == [(at("/a"), None)]
        assert stored(one.path) == {}
        assert counts(write(one, {at("/a"): [failure()]})) == {"/a": 1}

    def test_all_kinds_are_kept_as_they_are(self, make, path):
        changes = {
            at("/a"): [hold(NEVER)],
            at("/m", BUCKET): [declare(count=4, retry_after=NOW + 9)],
            at("", OPT_OUT, "a.example"): [OptedOut()],
            at("", BUDGET): [RetryTokens(shares=-7, full=20)],
        }
        written = write(make(), changes)
        assert dict(written.rows) == stored(path)
        assert [entry.count for _, entry in written.rows] == [-1, 4, -1, 13]

    def test_a_reset_leaves_the_opt_outs_and_is_everybodys(self, make, path):
        one, other = make(), make()
        out = at("", OPT_OUT, "a.example")
        write(one, {at("/a"): [failure()], out: [OptedOut()], at("", BUDGET): [RetryTokens(shares=-7, full=20)]})
        news = write(other, {at("/b"): [failure()]}, reset=True)
        assert (news.is_whole, [key for key, _ in news.rows]) == (True, [out, at("/b")])
        assert one.exchange() == news
        assert one.exchange() == other.exchange() == NOTHING
        assert write(other, {}, reset=True).rows == one.exchange().rows == news.rows[:1]

    def test_what_cannot_be_committed_is_not_there(self, make, path):
        one, other = make(), make()
        with pytest.raises(OverflowError):
            write(one, {at("/a"): [failure()], at("/b", BUDGET): [RetryTokens(shares=-7, full=2**80)]})
        assert other.exchange() == NOTHING
        assert counts(write(one, {at("/a"): [failure()]})) == {"/a": 1}

    def test_one_that_is_far_behind_reads_all_anew(self, make, monkeypatch):
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

    def test_changes_that_come_late_move_nothing_back(self, make):
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
    def test_one_takes_in_what_others_counted_for_its_members(self, make, path):
        one, other = make(), make()
        write(one, {at("/m/a"): [failure()] * 5, at("/m"): [hold(9)], at("/mm"): [failure()], at("/m~"): [failure()]})
        news = write(other, {at("/m", BUCKET): [declare(), failure()]})
        assert news.rows[-1][1].count == 6
        found = stored(path)
        assert sorted(key.path for key in found) == ["/m", "/mm", "/m~"]
        assert found[at("/m", BUCKET)].count == 6
        assert found[at("/m", BUCKET)].retry_after == NOW + 9

    def test_what_is_counted_for_a_member_counts_for_the_bucket_that_another_declared(self, make, path):
        one, other = make(), make()
        write(one, {at("/m", BUCKET): [declare()], at("/", BUCKET): [declare()]})
        news = write(other, {at("/m/a"): [failure()], at("/x"): [failure(), failure()]})
        assert news.rows[:2] == [(at("/m/a"), None), (at("/x"), None)]
        assert {key.path: entry.count for key, entry in stored(path).items()} == {"/m": 1, "/": 2}

    def test_one_starts_as_the_wider_one_that_another_declared(self, make, path):
        one, other = make(), make()
        write(one, {at("/", BUCKET): [declare(), hold(99)]})
        write(other, {at("/m", BUCKET): [declare()]})
        assert stored(path)[at("/m", BUCKET)].retry_after == NOW + 99

    def test_a_narrower_one_that_was_known_stays_as_it_is(self, make, path):
        one = make()
        write(one, {at("/m", BUCKET): [declare()]})
        write(one, {at("/", BUCKET): [declare(), hold(99)]})
        assert stored(path)[at("/m", BUCKET)].retry_after < NOW

    @pytest.mark.parametrize("at_once", [True, False])
    def test_so_does_one_that_was_declared_just_before(self, make, path, at_once):
        one, changes = make(), {at("/m", BUCKET): [declare()], at("/", BUCKET): [declare(), hold(99)]}
        if at_once:
            write(one, changes)
        else:
            for key, each in changes.items():
                write(one, {key: each})
        assert stored(path)[at("/m", BUCKET)].retry_after < NOW

    def test_a_narrower_one_that_was_not_takes_over_the_hold(self, make, path):
        one, other = make(), make()
        write(one, {at("/m", BUCKET): [declare()]})
        write(other, {at("/", BUCKET): [declare(), hold(99)]})
        assert stored(path)[at("/m", BUCKET)].retry_after == NOW + 99

    def test_a_forgotten_one_holds_no_members(self, make, path):
        write(make(), {at("/m", BUCKET): [declare()]})
        write(make(), {at("/m/a"): [failure(NOW + 120)]})
        assert at("/m/a") in stored(path)


class TestBounds:
    @pytest.mark.parametrize("most", [1, 10, 100])
    def test_each_kind_has_one(self, make, path, most):
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

    def test_what_holds_goes_last_and_what_fails_before_it(self, make, path):
        one = make(16)
        write(one, {at(f"/held/{number}"): [hold(99)] for number in range(6)})
        write(one, {at(f"/failing/{number}"): [failure(), failure()] for number in range(5)})
        write(one, {at(f"/healthy/{number}"): [failure(), SUCCESS] for number in range(5)})
        write(one, {at("/held/6"): [hold(99)]})
        left = [key.path.split("/")[1] for key in stored(path)]
        assert (left.count("held"), left.count("failing"), left.count("healthy")) == (7, 5, 3)

    def test_the_narrowest_wins_when_it_writes(self, make, path):
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
    def test_a_row_that_makes_no_sense_holds_nothing(self, make, path, column, value):
        one = make()
        row = list(self.ROW)
        row[column] = value
        with other_program(path) as other:
            other.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        assert all(entry is None for _, entry in one.exchange().rows)
        assert counts(write(one, {at("/a"): [failure()]}))["/a"] == 1

    def test_as_it_is_it_does(self, make, path):
        one = make()
        with other_program(path) as other:
            other.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self.ROW)
        assert counts(one.exchange()) == {"/a": 5}

    @pytest.mark.parametrize("path_", ["", "/x", 5])
    def test_what_is_no_path_is_no_bucket(self, make, path, path_):
        one = make()
        with other_program(path) as other:
            other.execute("INSERT INTO entries VALUES (1, 1, ?, ?, 5, 2000.0, 2000.0, 2000.0, 2000.0)", (ORIGIN, path_))
        assert counts(write(one, {at("/a"): [failure()]}))["/a"] == 1

    def test_a_member_that_makes_no_sense_is_not_taken_in(self, make, path):
        one = make()
        with other_program(path) as other:
            other.execute("INSERT INTO entries VALUES (1, 0, ?, '/m/a', 'many', 1e9, 1e9, 1e9, 1e9)", (ORIGIN,))
        write(one, {at("/m", BUCKET): [declare(), failure()]})
        assert stored(path)[at("/m", BUCKET)].count == 1

    def test_no_state_is_an_error(self, make, path):
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

    def test_and_where_there_is_nothing_to_write(self, make, path):
        one = make()
        write(one, {at("/a"): [failure()]})
        for each in path.parent.iterdir():
            each.unlink()
        assert one.exchange() == News(True, [])

    def test_one_that_is_replaced_while_a_transaction_begins_is_not_written(self, make, path, monkeypatch):
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

    def test_it_may_be_closed_and_read_on(self, make, path):
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

    def test_a_directory_that_is_gone_is_an_error(self, tmp_path):
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


def test_a_disk_that_is_full_is_an_error_and_nothing_is_lost(make, path):
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
