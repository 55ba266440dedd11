import os
import sqlite3
import stat
from contextlib import closing

import pytest

from headgate.agent import shared_database as database
from headgate.agent.shared_database import SCHEMA_VERSION, describe_error, is_locked, open_database
from headgate.errors import ConfigurationError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def opened(path):
    """Open and close a file; return what was said where that failed."""
    try:
        open_database(path, timeout=0).close()
    except (sqlite3.Error, ConfigurationError) as error:
        return describe_error(path, error)
    return None


def changed(path, *statements):
    """Do something to a file that a throttle has made."""
    open_database(path, timeout=0).close()
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


class TestMaking:
    def test_the_file_is_created_once_and_only_for_its_owner(self, path):
        mask = os.umask(0)
        try:
            assert opened(path) is None
        finally:
            os.umask(mask)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with closing(open_database(path, timeout=0)) as first, closing(open_database(path, timeout=0)) as second:
            identities = [each.execute("SELECT identity FROM state").fetchall() for each in (first, second)]
        assert identities[0] == identities[1]

    def test_an_empty_file_is_used(self, path):
        path.touch(0o640)
        path.chmod(0o640)
        assert opened(path) is None
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    @pytest.mark.parametrize(("times", "timeout", "is_opened"), [(3, 60, True), (1, 0, False)])
    def test_a_file_that_another_process_is_creating_is_retried(self, path, monkeypatch, times, timeout, is_opened):
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        failures = [error] * times

        def prepare(connection, path, prepare=database._prepare):
            if failures:
                raise failures.pop()
            prepare(connection, path)

        monkeypatch.setattr(database, "_prepare", prepare)
        if is_opened:
            open_database(path, timeout=timeout).close()
            assert failures == []
        else:
            with pytest.raises(sqlite3.OperationalError):
                open_database(path, timeout=timeout)

    def test_each_file_has_an_identity(self, tmp_path):
        with (
            closing(open_database(tmp_path / "a", timeout=0)) as first,
            closing(open_database(tmp_path / "b", timeout=0)) as second,
        ):
            identities = [each.execute("SELECT identity FROM state").fetchone() for each in (first, second)]
        assert identities[0] != identities[1]

    def test_the_write_ahead_log_is_limited(self, path):
        with closing(open_database(path, timeout=0)) as connection:
            said = {
                name: connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "journal_size_limit", "page_size")
            }
        assert said == {
            "journal_mode": "wal",
            "synchronous": 1,
            "journal_size_limit": 4_194_304,
            "page_size": 1_024,
        }

    def test_another_journal_mode_is_changed_back(self, path):
        changed(path, "PRAGMA journal_mode = DELETE")
        with closing(open_database(path, timeout=0)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def test_a_very_long_value_is_not_read(self, path):
        changed(path, "UPDATE state SET identity = hex(zeroblob(10000000))")
        with closing(open_database(path, timeout=0)) as connection, pytest.raises(sqlite3.Error):
            connection.execute("SELECT identity FROM state").fetchone()


class TestRefusals:
    def test_a_missing_directory_is_named(self, tmp_path):
        path = tmp_path / "no" / "file"
        assert opened(path) == f"{path} cannot be opened, since {path.parent} is not a directory; create it"

    def test_a_directory_instead_of_a_file_is_named(self, tmp_path):
        assert opened(tmp_path) == f"{tmp_path} is a directory; name a file in it"

    def test_a_file_instead_of_a_directory_is_named(self, path):
        path.touch()
        below = path / "file"
        assert opened(below) == f"{below} cannot be opened, since {path} is not a directory; create it"

    @pytest.mark.parametrize("content", [b"x", b"nothing like a database\n" * 100])
    def test_a_file_of_another_kind_is_refused(self, path, content):
        path.write_bytes(content)
        assert opened(path) == f"{path} is not an SQLite database; choose another path, or delete the file"
        assert path.read_bytes() == content

    @pytest.mark.parametrize(
        "statement",
        ["CREATE TABLE t (x)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"],
    )
    def test_a_database_of_another_program_is_refused(self, path, statement):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            connection.commit()
        before = path.read_bytes()
        assert opened(path) == f"{path} is a database of another program; choose another path"
        assert path.read_bytes() == before

    @pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
    def test_another_version_is_refused(self, path, version):
        changed(path, f"PRAGMA user_version = {version}")
        before = path.read_bytes()
        assert opened(path) == (
            f"{path} was written by another version of headgate (schema {version}, expected 2); choose another path, "
            "or delete the file while no program uses it"
        )
        assert path.read_bytes() == before

    def test_a_damaged_file_is_described(self, path):
        changed(path)
        content = bytearray(path.read_bytes())
        content[100:1_024] = os.urandom(924)
        path.write_bytes(content)
        assert opened(path) == (
            f"{path} is damaged; delete it while no program uses it, with the -wal and -shm files beside it"
        )

    def test_a_locked_file_is_described(self, path):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(sqlite3.OperationalError) as refusal:
                open_database(path, timeout=0)
        assert is_locked(refusal.value)
        assert describe_error(path, refusal.value) == (
            f"{path} is locked by another program; wait for that program, or end it"
        )

    def test_a_file_that_is_being_written_can_be_opened(self, path):
        changed(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert opened(path) is None

    def test_a_file_without_write_ahead_log_is_refused(self, path, monkeypatch):
        class NoMemoryIsShared(sqlite3.Connection):
            def execute(self, statement, *values):
                return super().execute("SELECT 'delete'" if "journal_mode" in statement else statement, *values)

        monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: NoMemoryIsShared(*a, **k))
        assert opened(path) == f"{path} cannot have a write-ahead log where it is; choose a path on a local disk"

    def test_another_reason_for_not_opening_is_described(self, path):
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        said = "cannot be opened; allow this program to write the file and its directory, or choose another path"
        assert describe_error(path, error) == f"{path} {said}"

    def test_other_errors_are_described(self, path):
        assert describe_error(path, ValueError("no")) == f"{path} cannot be used (no); choose a path on a local disk"
        assert not is_locked(ValueError("no"))


def prepare_after(times, *, code):
    """Return what prepares a connection after so many errors."""
    errors = []

    def prepare(connection, path):
        connection.execute("BEGIN IMMEDIATE")
        if len(errors) < times:
            errors.append(sqlite3.OperationalError("an error"))
            errors[-1].sqlite_errorcode = code
            raise errors[-1]
        connection.execute("COMMIT")

    return prepare


def test_a_lock_that_sqlite_does_not_wait_for_is_retried(path, monkeypatch):
    monkeypatch.setattr(database, "_prepare", prepare_after(3, code=sqlite3.SQLITE_BUSY))
    open_database(path, timeout=5).close()


@pytest.mark.parametrize(("code", "timeout"), [(sqlite3.SQLITE_BUSY, 0), (sqlite3.SQLITE_CORRUPT, 5)])
def test_only_locks_are_retried_and_only_until_the_timeout(path, monkeypatch, code, timeout):
    monkeypatch.setattr(database, "_prepare", prepare_after(1, code=code))
    with pytest.raises(sqlite3.OperationalError, match="an error"):
        open_database(path, timeout=timeout)
