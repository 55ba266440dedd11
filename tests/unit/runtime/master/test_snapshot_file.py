import fcntl
import io
import os
import struct
import zlib

import msgspec
import pytest

from headgate.limit import Domain, Rule
from headgate.runtime.master.snapshot_file import (
    Header,
    InvalidSnapshot,
    SnapshotDomain,
    SnapshotReader,
    SnapshotWriter,
)

DOMAINS = (SnapshotDomain(b"api", "log", ("1/s",)),)
HEADER = Header(1_700_000_000.5, 3.0, 1_700_000_003.5, "0123456789abcdef", True, "little", DOMAINS)
PARTS = [(0, [b"\xff\0", b"numbers", b"", b""]), (0, []), (0, [b"b", b"\0" * 100_000])]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "snapshot"


def files(folder):
    return [path.name for path in folder.iterdir()]


def write(path, *parts, header=HEADER):
    writer = SnapshotWriter(path, header)
    for part in parts:
        writer.add(part)
    writer.commit()
    return path.read_bytes()


def read(content):
    reader = SnapshotReader(io.BytesIO(content))
    return reader.header, list(reader.parts())


def frame(value):
    return framed(msgspec.msgpack.encode(value))


def framed(content):
    return struct.pack(">II", len(content), zlib.crc32(content)) + content


def test_what_is_written_is_read(path):
    assert read(write(path, *PARTS)) == (HEADER, PARTS)


def test_format_is_the_documented_one(path):
    header = {
        "saved": 1_700_000_000.5, "behind": 3.0, "latest": 1_700_000_003.5, "identity": "0123456789abcdef",
        "final": True, "byteorder": "little",
        "domains": [{"name": b"api", "algorithm": "log", "rules": ["1/s"]}],
    }  # fmt: skip
    part = [0, [b"a", b"\0\1"]]
    assert write(path, (0, [b"a", b"\0\1"])) == b"headgate snapshot 1\n" + frame(header) + frame(part) + frame(1)


def test_domains_are_the_same_if_their_rules_and_algorithm_are():
    rules = tuple(map(Rule.parse, ("60/min burst 5", "1/h")))
    saved = SnapshotDomain.of(Domain("\udcff", rules, "gcra"))
    assert saved == SnapshotDomain(b"\xff", "gcra", ("60/min burst 5", "1/h burst 1"))
    assert saved == SnapshotDomain.of(Domain("\udcff", rules, "gcra", "shadow", ("192.0.2.1",)))
    assert saved != SnapshotDomain.of(Domain("\udcff", rules, "log"))


def test_every_truncated_file_is_invalid(path):
    content = write(path, *PARTS)
    for size in [*range(1_000), *range(1_000, len(content), 997), len(content) - 1]:
        with pytest.raises(InvalidSnapshot):
            read(content[:size])


def test_every_changed_byte_is_found(path):
    content = write(path, *PARTS)
    for at in [*range(1_000), *range(1_000, len(content), 997)]:
        with pytest.raises(InvalidSnapshot):
            read(content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :])


START = b"headgate snapshot 1\n" + frame(HEADER)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a snapshot"),
        (b"\0" * 100_000, "not a snapshot"),
        (b"headgate snapshot 2\n" + b"x" * 100, "unknown version '2'; expected '1'"),
        (b"headgate snapshot " + b"\xff" * 100, "unknown version '\ufffd"),
        (b"headgate snapshot 1\n" + frame({"saved": 1.0}), "invalid header"),
        (b"headgate snapshot 1\n" + framed(b"\x81\xa1x" * 10_000 + b"\xc0"), "invalid header"),
        (b"headgate snapshot 1\n" + frame({**msgspec.structs.asdict(HEADER), "saved": 1e13}), "invalid header"),
        (
            b"headgate snapshot 1\n" + frame({**msgspec.structs.asdict(HEADER), "latest": float("nan")}),
            "invalid header",
        ),
        (b"headgate snapshot 1\n" + frame({**msgspec.structs.asdict(HEADER), "identity": "x"}), "invalid header"),
        (START + frame((1, [])) + frame(0), "unknown domain 1"),
        (START + frame((-1, [])) + frame(0), "unknown domain -1"),
        (START + frame((0, [b"a", "text"])) + frame(1), "invalid value"),
        (START + frame((0, [b"a", b""])) + frame(2), "1 histories; expected 2"),
        (START + frame(0) + b"\0", "more bytes after the end"),
        (START + struct.pack(">II", 2**32 - 1, 0), "4294967295 bytes"),
        (START + struct.pack(">II", 2**26, 0), "the end is missing"),
        (START + struct.pack(">II", 1, 0) + b"\0", "wrong checksum"),
    ],
)
def test_invalid_files(content, message):
    with pytest.raises(InvalidSnapshot) as raised:
        read(content)
    assert message in str(raised.value)


class TestWriter:
    def test_only_the_owner_may_read_the_file(self, path):
        umask = os.umask(0)
        try:
            write(path)
        finally:
            os.umask(umask)
        assert path.stat().st_mode & 0o777 == 0o600

    def test_previous_file_stays_until_the_end(self, path):
        before = write(path)
        writer = SnapshotWriter(path, HEADER)
        writer.add(PARTS[0])
        assert path.read_bytes() == before
        writer.commit()
        assert path.read_bytes() != before
        assert files(path.parent) == ["snapshot"]

    def test_previous_file_stays_if_the_new_one_is_discarded(self, path):
        before = write(path)
        writer = SnapshotWriter(path, HEADER)
        writer.add(PARTS[0])
        writer.discard()
        assert path.read_bytes() == before
        assert files(path.parent) == ["snapshot"]

    def test_incomplete_file_of_a_killed_process_is_used_again(self, path):
        left = path.with_name(".snapshot.new")
        left.write_bytes(b"x" * 10_000)
        left.chmod(0o644)
        assert read(write(path, *PARTS)) == (HEADER, PARTS)
        assert path.stat().st_mode & 0o777 == 0o600
        assert files(path.parent) == ["snapshot"]

    def test_two_writers_exclude_each_other(self, path):
        writer = SnapshotWriter(path, HEADER)
        with pytest.raises(BlockingIOError):
            SnapshotWriter(path, HEADER)
        writer.commit()
        assert read(path.read_bytes()) == (HEADER, [])

    def test_file_that_was_renamed_while_it_was_opened_is_not_overwritten(self, path, monkeypatch):
        """The other writer has renamed its file, and closed it, between the opening and the lock."""
        writer = SnapshotWriter(path, HEADER)
        lock = fcntl.flock

        def commit_first(*arguments):
            monkeypatch.undo()
            writer.commit()
            lock(*arguments)

        monkeypatch.setattr(fcntl, "flock", commit_first)
        with pytest.raises(OSError, match=r"renamed|snapshot\.new"):
            SnapshotWriter(path, HEADER)
        assert read(path.read_bytes()) == (HEADER, [])

    def test_symbolic_link_is_not_followed(self, path):
        target = path.with_name("target")
        path.with_name(".snapshot.new").symlink_to(target)
        with pytest.raises(OSError, match="symbolic"):
            SnapshotWriter(path, HEADER)
        assert not target.exists()
