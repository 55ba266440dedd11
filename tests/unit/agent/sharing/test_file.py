import os
import sqlite3
from contextlib import closing

import pytest

from headgate.agent.sharing import file as module
from headgate.agent.sharing.file import FARTHEST, Forked, ThrottleFile
from headgate.agent.sharing.mirror import Changes
from headgate.agent.sharing.rows import BUCKET, BUDGET, OPT_OUT, TARGET, Limits, Row
from headgate.release import ASAP, NEVER

LIMITS = Limits(1_000, 500)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def one(path):
    opened = ThrottleFile(path, LIMITS)
    yield opened
    opened.close()


@pytest.fixture
def other(path):
    opened = ThrottleFile(path, LIMITS)
    yield opened
    opened.close()


def target(number, count=1):
    return Row((TARGET, f"http://{number}.example/"), (count, 1.0, ASAP, ASAP))


def put(file, *rows, gone=(), cleared=()):
    """Write rows; return the position after."""
    with file.writing():
        return file.write(Changes(set(cleared), list(gone), list(rows)), file.everything().position)


def everything(file):
    with file.reading():
        return file.everything()


def news(file, position):
    with file.reading():
        return file.news(position)


def counted(path, table):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


class TestOpening:
    def test_when_first_needed_and_again(self, path, one):
        assert not path.exists()
        first = one.version()
        assert one.version() == first
        one.open()
        assert one.version() == first
        one.close()
        one.close()
        assert not path.with_name("file-wal").exists()
        assert one.version() != first

    def test_where_it_was_when_it_was_named(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        opened = ThrottleFile(":memory:", LIMITS)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        opened.version()
        opened.close()
        assert (tmp_path / ":memory:").exists()

    def test_a_fork_nobody_told_of(self, one, monkeypatch):
        one.version()
        monkeypatch.setattr(os, "getpid", lambda: -1)
        for use in (one.version, one.close, lambda: put(one)):
            with pytest.raises(Forked):
                use()
        monkeypatch.undo()
        assert one.version()


class TestNews:
    def test_is_none_for_who_knows_all(self, one):
        position = put(one, target(1))
        assert news(one, position) is None

    def test_rows_come_oldest_first(self, one, other):
        position = put(one, target(1))
        put(other, target(2), Row((OPT_OUT, "a"), (0, ASAP, ASAP, ASAP)))
        put(other, target(1, 2), Row((BUDGET, "http://a"), (4, ASAP, NEVER, 7.0)))
        found = news(one, position)
        assert [row.key for row in found.rows] == [
            target(2).key,
            (OPT_OUT, "a"),
            target(1).key,
            (BUDGET, "http://a"),
        ]
        assert found.rows[2].values == (2, 1.0, ASAP, ASAP)
        assert found.rows[3].values == (4, ASAP, NEVER, 7.0)
        assert (found.is_whole, found.is_cut, found.gone) == (False, False, [])
        assert found.position.change == position.change + 4
        assert news(one, found.position) is None

    def test_what_went_is_told(self, path, one, other):
        position = put(one, target(1), target(2))
        put(other, gone=[target(1).key])
        found = news(one, position)
        assert (found.gone, found.rows, found.is_whole) == ([target(1).key], [], False)
        assert everything(one).rows == [target(2)]
        assert counted(path, "kept") == 1

    def test_what_went_and_came_back_is_there(self, one, other):
        position = put(one, target(1))
        put(other, gone=[target(1).key])
        put(other, target(1, 7))
        assert news(one, position).rows == [target(1, 7)]

    def test_a_clearing_makes_all_read_anew(self, one, other):
        position = put(one, target(1), Row((OPT_OUT, "a"), (0, ASAP, ASAP, ASAP)))
        put(other, target(2), cleared=[TARGET, BUCKET, BUDGET])
        found = news(one, position)
        assert found.is_whole
        assert [row.key for row in found.rows] == [target(2).key, (OPT_OUT, "a")]

    def test_many_at_once_make_all_read_anew(self, path, one, other, monkeypatch):
        monkeypatch.setattr(module, "FARTHEST", 10)
        monkeypatch.setattr(module, "_CUT", 4)
        position = put(one, *map(target, range(8)))
        put(other, gone=[target(number).key for number in range(6)])
        found = news(one, position)
        assert found.is_whole
        assert found.rows == [target(6), target(7)]
        assert counted(path, "log") == 8 + 1

    def test_the_log_is_cut(self, path, one, other, monkeypatch):
        monkeypatch.setattr(module, "FARTHEST", 10)
        monkeypatch.setattr(module, "_CUT", 4)
        position = put(one, *map(target, range(30)))
        near = position
        for number in range(30):
            if number == 25:
                near = everything(one).position
            put(other, gone=[target(number).key])
            assert counted(path, "log") <= 14
        assert news(one, near).gone == [target(number).key for number in range(25, 30)]
        assert news(one, position).is_whole

    def test_another_file_is_read_from_the_start(self, tmp_path, one):
        elsewhere = ThrottleFile(tmp_path / "elsewhere", LIMITS)
        position = put(elsewhere, target(1))
        elsewhere.close()
        put(one, target(2))
        assert news(one, position).is_whole
        assert news(one, position).rows == [target(2)]

    def test_a_file_from_before_is_read_from_the_start(self, one):
        position = put(one, target(1))
        assert news(one, position._replace(change=position.change + 1)).is_whole
        assert news(one, position._replace(change=position.change - FARTHEST - 1)).is_whole

    def test_no_more_than_there_may_be(self, path, one):
        rows = [target(number) for number in range(5)]
        put(one, *rows, *(Row((OPT_OUT, row.key[1][7:-1]), (0, ASAP, ASAP, ASAP)) for row in rows))
        narrow = ThrottleFile(path, Limits(3, 2))
        found = everything(narrow)
        assert found.is_cut
        assert found.rows[:3] == rows[2:]
        assert [row.key[1] for row in found.rows[3:]] == ["3.example", "4.example"]
        with narrow.writing():
            narrow.trim()
            trimmed = narrow.everything()
        assert (trimmed.is_cut, trimmed.rows) == (False, found.rows)
        assert news(one, found.position).is_whole
        narrow.close()
        assert counted(path, "kept") == 5

    @pytest.mark.parametrize(
        "row",
        [
            "(9, 'http://a.example/', 99, 1, 1.0, 1.0, 1.0)",
            "(0, 'nonsense', 99, 1, 1.0, 1.0, 1.0)",
            "(0, CAST(X'687474703a2f2fff2f' AS TEXT), 99, 1, 1.0, 1.0, 1.0)",
            "(0, 'http://a.example/', 99, -7, 1.0, 1.0, 1.0)",
            "(0, 'http://a.example/', 99, 1, NULL, 1.0, 1.0)",
            "(0, 'http://a.example/', 99, 1, 9e999, 1.0, 1.0)",
            "(0, 'http://a.example/', 99, 'many', 1.0, 1.0, 1.0)",
        ],
    )
    def test_rows_that_make_no_sense_are_passed_over(self, path, one, row):
        position = put(one, target(1))
        with closing(sqlite3.connect(path)) as stranger:
            stranger.execute(f"INSERT INTO kept VALUES {row}")
            stranger.execute("INSERT INTO log VALUES (97, 0, 'nonsense'), (98, 0, 'nothing'), (99, 0, 'nonsense')")
            stranger.execute("INSERT INTO log SELECT 100, kind, name FROM kept WHERE change = 99")
            stranger.execute("UPDATE kept SET change = 100 WHERE change = 99")
            stranger.commit()
        assert everything(one).rows == [target(1)]
        found = news(one, position)
        assert (found.is_whole, found.gone, found.rows) == (False, [], [])

    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM state",
            "INSERT INTO log VALUES (4611686018427387904, 0, 'x')",
            "UPDATE log SET change = -1",
        ],
    )
    def test_a_state_that_makes_no_sense(self, path, one, statement):
        position = put(one, target(1))
        with closing(sqlite3.connect(path)) as stranger:
            stranger.execute(statement)
            stranger.commit()
        with pytest.raises(sqlite3.DatabaseError, match="not that of a throttle"):
            news(one, position)


class TestTransactions:
    def test_the_version_changes_when_another_writes(self, one, other):
        put(one, target(1))
        version = one.version()
        put(one, target(1, 2))
        assert one.version() == version
        put(other, target(1, 3))
        assert one.version() != version

    def test_what_fails_inside_was_never_written(self, one, other):
        def write_and_fail():
            with one.writing():
                one.write(Changes(set(), [], [target(2)]), one.everything().position)
                raise KeyError

        put(one, target(1))
        with pytest.raises(KeyError):
            write_and_fail()
        assert everything(other).rows == [target(1)]
        put(one, target(2))

    def test_two_do_not_write_at_once(self, one, other, monkeypatch):
        monkeypatch.setattr(module, "PATIENCE", 0.01)
        one.version()
        other.version()
        with one.writing():
            with pytest.raises(sqlite3.OperationalError, match="locked"), other.writing():
                pytest.fail("both")
            assert everything(other).rows == []
        put(other, target(1))

    def test_only_a_lock_is_waited_for(self, path, one, other, monkeypatch):
        waits = []
        monkeypatch.setattr(module.time, "sleep", waits.append)
        with pytest.raises(sqlite3.OperationalError):
            ThrottleFile(path / "no" / "file", LIMITS).check()
        assert waits == []
        monkeypatch.setattr(module, "PATIENCE", 0.02)
        other.version()
        with one.writing(), pytest.raises(sqlite3.OperationalError):
            put(other)
        assert waits
        assert all(0.0001 < wait < 0.01 for wait in waits)

    def test_a_question_holds_nothing_open(self, path, one, other):
        put(one, target(1))
        one.version()
        everything(one)
        put(other, target(2))
        with closing(sqlite3.connect(path, timeout=0)) as stranger:
            is_busy, *_ = stranger.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not is_busy

    def test_the_wal_starts_over(self, path, one, other):
        for number in range(700):
            put(one, target(number), gone=[target(number - 1).key])
            other.version()
        assert path.with_name("file-wal").stat().st_size < 6_000_000
        assert path.stat().st_size < 400_000


class TestMoving:
    @pytest.mark.parametrize("ends", [("",), ("", "-wal", "-shm")])
    def test_one_that_was_deleted_is_made_anew(self, path, one, ends):
        put(one, target(1))
        assert not one.is_moved()
        for end in ends:
            path.with_name(path.name + end).unlink()
        assert one.is_moved()
        put(one, target(2))
        assert not one.is_moved()
        assert everything(one).rows == [target(2)]

    def test_one_that_was_replaced_is_used(self, tmp_path, path, one):
        put(one, target(1))
        elsewhere = ThrottleFile(tmp_path / "elsewhere", LIMITS)
        put(elsewhere, target(2))
        elsewhere.close()
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink()
        (tmp_path / "elsewhere").rename(path)
        put(one, target(3))
        assert everything(one).rows == [target(2), target(3)]

    @pytest.mark.parametrize("is_told_by_sqlite", [False, True])
    def test_one_that_another_made_anew_is_found(self, path, one, other, is_told_by_sqlite):
        put(one, target(1))
        if is_told_by_sqlite:  # its WAL begins with other pages than the new one, where "is not a database"
            one.close()
            put(one, target(1))
        path.unlink()
        put(other, target(2))
        put(one, target(3))
        assert everything(other).rows == [target(2), target(3)]

    def test_no_file_and_no_folder(self, tmp_path):
        folder = tmp_path / "folder"
        folder.mkdir()
        file = ThrottleFile(folder / "file", LIMITS)
        put(file, target(1))
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
        with pytest.raises(sqlite3.OperationalError):
            put(file, target(2))
        folder.mkdir()
        put(file, target(3))
        assert everything(file).rows == [target(3)]
        file.close()
