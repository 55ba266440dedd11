import asyncio
import shutil

import pytest

from headgate.errors import FormatError
from headgate.origin.bundle.publication import Publication


@pytest.fixture
def complaints():
    return []


def replace(path, content):
    other = path.with_suffix(".new")
    other.write_bytes(content)
    other.rename(path)


def renewed(publication):
    asyncio.run(publication.renew(at_once=True))
    return publication.edition


def test_another_file_at_the_path_is_another_edition(bundle, complaints):
    path = bundle({"url": "/", "payload": b"one"})
    publication = Publication(path, complain=complaints.append)
    first = publication.edition
    assert renewed(publication) is first
    assert publication.is_current
    replace(path, bundle({"url": "/", "payload": b"two"}, name="two.wbn").read_bytes())
    assert not publication.is_current
    second = renewed(publication)
    assert second is not first
    assert second.digest != first.digest
    assert first.file.is_as_opened()
    assert publication.is_current
    assert complaints == []


def test_one_that_is_no_bundle_changes_nothing_and_is_told_once(bundle, complaints):
    path = bundle()
    good = path.read_bytes()
    publication = Publication(path, complain=complaints.append)
    first = publication.edition
    for content in (b"no bundle", b"no bundle", b"nothing either"):
        replace(path, content)
        assert renewed(publication) is first
        assert renewed(publication) is first
    path.unlink()
    assert renewed(publication) is first
    assert not publication.is_current
    assert len(complaints) == 3
    assert all(complaint.endswith("; what was served before is served on") for complaint in complaints)
    assert complaints[0].startswith(str(path))
    replace(path, good)
    assert renewed(publication) is not first
    assert publication.is_current


def test_a_file_that_is_still_being_written_waits(bundle, complaints):
    path = bundle({"url": "/", "payload": b"x" * 5000})
    whole = path.read_bytes()
    publication = Publication(path, complain=complaints.append)
    first = publication.edition
    replace(path, whole[:-1000])
    assert renewed(publication) is first
    assert "ends before the bundle does" in complaints[0]
    replace(path, whole)
    assert renewed(publication) is not first


def test_a_cut_file_is_followed_by_another_where_there_was_nothing_better(bundle):
    path = bundle({"url": "/", "payload": b"x" * 5000})
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    publication = Publication(path)
    first = publication.edition
    replace(path, whole[:-500])
    assert renewed(publication) is not first


def test_it_looks_once_a_second_and_not_twice_at_once(bundle, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("headgate.origin.bundle.publication.time.monotonic", lambda: now[0])
    path = bundle()
    publication = Publication(path)
    looks = []
    monkeypatch.setattr("headgate.origin.bundle.publication.file_state", lambda path: looks.append(now[0]))
    for now[0] in (100.0, 100.5, 100.9, 101.0, 101.5, 102.5):
        asyncio.run(publication.renew())
    # The first look finds no state there and opens the file: 100.0, 101.0 and 102.5 are looks.
    assert looks == [100.0, 101.0, 102.5]


def test_a_path_keeps_its_meaning_when_the_program_goes_elsewhere(bundle, tmp_path, monkeypatch):
    path = bundle()
    monkeypatch.chdir(tmp_path)
    publication = Publication(path.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    first = publication.edition
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").rename(path)
    assert renewed(publication) is not first


def test_without_a_first_edition_there_is_none(tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(FormatError):
        Publication(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        Publication(tmp_path / "none")
