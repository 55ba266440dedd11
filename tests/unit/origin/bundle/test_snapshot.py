import asyncio
import gzip
import hashlib
import os
import threading
from pathlib import Path

import pytest

from headgate.http.date import parse_http_date
from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.origin.bundle import snapshot as snapshot_module
from headgate.origin.bundle.representation import SMALL
from headgate.origin.bundle.server import BundleServer
from headgate.origin.bundle.snapshot import BundleSnapshot, MiContent, ReloadingBundle
from tests import signers
from tests.webbundles import BIG, HTML, PAGE


@pytest.mark.parametrize(("version", "v"), [("b1", b"b1"), ("b2", b"b2"), ("draft-01", b"1")])
def test_media_type_has_the_version_of_the_file(snapshot, version, v):
    fields = dict(snapshot(version=version).representation.fields)
    assert fields[b"content-type"] == b"application/webbundle;v=" + v
    assert fields[b"x-content-type-options"] == b"nosniff"


def test_etag_depends_on_the_bytes_only(bundle, tmp_path):
    path = bundle({"url": "/", "payload": b"one"})
    first = BundleSnapshot(path)
    copy = tmp_path / "copy.wbn"
    copy.write_bytes(path.read_bytes())
    os.utime(copy, (0, 0))
    assert BundleSnapshot(copy).representation.validators.etag == first.representation.validators.etag
    assert bundle({"url": "/", "payload": b"two"}) == path
    os.utime(path, ns=(0, first.state.modified))
    second = BundleSnapshot(path)
    assert (second.state.size, second.state.modified) == (first.state.size, first.state.modified)
    assert second.representation.validators.etag != first.representation.validators.etag


def test_last_modified_is_never_in_the_future(bundle):
    path = bundle()
    os.utime(path, (0, 784_111_777))
    assert dict(BundleSnapshot(path).representation.fields)[b"last-modified"] == b"Sun, 06 Nov 1994 08:49:37 GMT"
    os.utime(path, (0, 2**33))
    modified = parse_http_date(dict(BundleSnapshot(path).representation.fields)[b"last-modified"])
    assert modified is not None
    assert modified < 2**33


def test_integrity_block_is_served_with_the_file_only(bundle, tmp_path):
    plain = bundle({"url": "/", "payload": b"home"})
    signed = tmp_path / "signed.swbn"
    # A block without signatures: array of 4, magic, version, attributes, an empty list.
    block = bytes.fromhex("8448f09f968bf09f93a644326200 00a16b77656242756e646c654964") + b"\x61x" + b"\x80"
    signed.write_bytes(block + plain.read_bytes())
    snapshot = BundleSnapshot(signed)
    assert snapshot.is_whole
    assert snapshot.representation.part.length == signed.stat().st_size
    location = snapshot.metadata.requests["https://site.example/"]
    _, _, content = snapshot.response(location)
    assert content.read() == b"home"


SHORT = BIG[:SMALL]
LONG = BIG[: 2 * SMALL + 1]
ZIPPED = gzip.compress(LONG, mtime=0)
BASE = "https://site.example"


@pytest.fixture
def signed(bundle):
    """Write a bundle, sign it, change a byte of the payloads at `changed`; give its path."""

    def write(*exchanges, changed=()):
        path = bundle(*(exchanges or SITE))
        content = signers.vouched(path.read_bytes(), "site.example")
        for url in changed:
            content = signers.tampered(content, BASE + url)
        path.write_bytes(content)
        return path

    return write


def variant(key):
    variants = {"variants": "Accept-Language;en;fr", "variant_key": key}
    return {"url": "/page", "payload": key.encode(), "headers": HTML | {"etag": '"p"'}, **variants}


SITE = (
    {"url": "/", "payload": PAGE, "headers": HTML | {"etag": '"home"'}},
    {"url": "/short", "payload": SHORT},
    {"url": "/long", "payload": LONG, "headers": HTML | {"etag": '"long"', "content-length": str(len(LONG))}},
    {"url": "/big", "payload": BIG},
    {"url": "/zipped", "payload": ZIPPED, "headers": HTML | {"content-encoding": "gzip"}},
    {"url": "/empty", "payload": b"", "headers": HTML},
    {"url": "/gone", "status": 410, "payload": b"gone"},
    {"url": "/nothing", "status": 204, "payload": b""},
    variant("en"),
    variant("fr"),
)


def front(path):
    return BundleServer(ReloadingBundle(path), unpack=True)


def ask(path, target, *fields, method=b"GET"):
    return front(path).answer(method, b"127.0.0.1", target, list(fields))


def request(target, *lines, method=b"GET"):
    head = b"%b %b HTTP/1.1\r\nHost: site.example\r\n%b\r\n" % (
        method,
        target,
        b"".join(one + b"\r\n" for one in lines),
    )
    return parse_request_head(head, RequestLimits())


def body(response):
    return response.source.read() if response.source is not None else response.body


TARGETS = [b"/", b"/short", b"/long", b"/big", b"/zipped", b"/empty", b"/gone", b"/nothing", b"/page"]
ASKED = [(), ((b"range", b"bytes=4090-4100"),), ((b"range", b"bytes=-70000"),), ((b"range", b"bytes=9999999-"),),
         ((b"if-none-match", b'"home", "long"'),), ((b"accept-language", b"fr"),)]  # fmt: skip


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("fields", ASKED)
def test_signed_responses_are_served_decoded(bundle, signed, method, fields):
    plain, coded = front(bundle(*SITE, name="plain.wbn")), front(signed())
    for target in TARGETS:
        before, after = (one.answer(method, b"127.0.0.1", target, list(fields)) for one in (plain, coded))
        # What has no tag of its own has one by file and place.
        tags = [dict(one.fields).pop(b"etag", b"").rpartition(b"-")[0] for one in (before, after)]
        assert all(tags) or tags == [b"", b""]
        heads = [[one for one in found.fields if not (all(tags) and one[0] == b"etag")] for found in (before, after)]
        assert (after.status, heads[1]) == (before.status, heads[0]), target
        assert body(after) == body(before)


def test_any_range_of_a_decoded_payload_is_correct(signed):
    found = ask(signed(), b"/long").source
    assert isinstance(found, MiContent)
    for start, stop in [(0, 1), (4095, 4097), (4096, 8192), (1, len(LONG)), (len(LONG), len(LONG)), (9, 9)]:
        assert found.read(start, stop) == LONG[start:stop]
        assert found.cut(start, stop).read() == LONG[start:stop]
        assert found.cut(start, stop).length == stop - start
    inner = found.cut(10, 70_000).cut(5, 60_000)
    assert inner.read() == LONG[15:60_010]
    assert inner.read(4000, 5000) == LONG[4015:5015]


@pytest.mark.parametrize("url", ["/", "/long", "/big", "/gone"])
def test_changed_signed_response_is_refused(signed, url):
    path = signed(changed=[url])
    site = front(path)
    for fields in ([], [(b"range", b"bytes=0-1")]):
        for method in (b"GET", b"HEAD"):
            refused = site.answer(method, b"127.0.0.1", url.encode(), fields)
            assert refused.status == 502
            assert b"is not what its digest says at byte" in refused.body
    assert ask(path, b"/short").body == SHORT


def test_long_responses_are_verified_once_and_in_advance(signed, monkeypatch):
    site = front(signed(changed=["/big"]))
    path = signed()
    fine = front(path)

    def never(*_):
        raise AssertionError("hashed while a request waits")

    monkeypatch.setattr(hashlib, "sha256", never)
    for _ in range(3):
        assert site.answer(b"GET", b"a", b"/big", []).status == 502
        assert body(fine.answer(b"GET", b"a", b"/big", [])) == BIG
    with pytest.raises(AssertionError):
        fine.answer(b"GET", b"a", b"/long", [])


def test_verification_of_overlapping_responses_is_limited(signed):
    """Preparing reads no more than the file has, whatever its index says."""
    snapshot = BundleSnapshot(signed())
    asked = []
    original = snapshot.response

    def response(location):
        asked.append(location)
        return original(location)

    place = snapshot.metadata.requests[BASE + "/big"]
    for number in range(50):
        snapshot.metadata.requests[f"{BASE}/{number}"] = type(place)(place.offset - number, place.length)
    snapshot.response = response
    snapshot.prepare()
    assert sum(location.length for location in asked) <= snapshot.file.size


@pytest.fixture
def messages():
    return []


def replace(path, content):
    other = path.with_suffix(".new")
    other.write_bytes(content)
    other.rename(path)


def renewed(reloading):
    asyncio.run(reloading.renew(at_once=True))
    return reloading.snapshot


def test_replaced_file_is_loaded(bundle, messages):
    path = bundle({"url": "/", "payload": b"one"})
    reloading = ReloadingBundle(path, log=messages.append)
    first = reloading.snapshot
    assert renewed(reloading) is first
    assert reloading.is_current
    replace(path, bundle({"url": "/", "payload": b"two"}, name="two.wbn").read_bytes())
    assert not reloading.is_current
    second = renewed(reloading)
    assert second is not first
    assert second.digest != first.digest
    assert first.file.is_unchanged()
    assert reloading.is_current
    assert messages == []


def test_invalid_bundle_is_reported_once_and_not_served(bundle, messages):
    path = bundle()
    good = path.read_bytes()
    reloading = ReloadingBundle(path, log=messages.append)
    first = reloading.snapshot
    for content in (b"no bundle", b"no bundle", b"nothing either"):
        replace(path, content)
        assert renewed(reloading) is first
        assert renewed(reloading) is first
    path.unlink()
    assert renewed(reloading) is first
    assert not reloading.is_current
    assert len(messages) == 3
    assert all(complaint.endswith("; the bundle loaded before is still served") for complaint in messages)
    assert messages[0].startswith(str(path))
    replace(path, good)
    assert renewed(reloading) is not first
    assert reloading.is_current


def test_incomplete_file_is_not_loaded(bundle, messages):
    path = bundle({"url": "/", "payload": b"x" * 5000})
    whole = path.read_bytes()
    reloading = ReloadingBundle(path, log=messages.append)
    first = reloading.snapshot
    replace(path, whole[:-1000])
    assert renewed(reloading) is first
    assert "ends before the bundle does" in messages[0]
    replace(path, whole)
    assert renewed(reloading) is not first


def test_file_is_checked_once_a_second(bundle, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("headgate.origin.bundle.snapshot.time.monotonic", lambda: now[0])
    path = bundle()
    reloading = ReloadingBundle(path)
    looks = []
    monkeypatch.setattr("headgate.origin.bundle.snapshot.file_state", lambda path: looks.append(now[0]))
    for now[0] in (100.0, 100.5, 100.9, 101.0, 101.5, 102.5):
        asyncio.run(reloading.renew())
    # The first look finds no state there and opens the file: 100.0, 101.0 and 102.5 are looks.
    assert looks == [100.0, 101.0, 102.5]


@pytest.fixture
def opening(monkeypatch):
    """Hold every opening of a file until `release` is set; `begun` counts them."""

    class Opening:
        def __init__(self):
            self.begun = 0
            self.threads = []
            self.started, self.release = threading.Event(), threading.Event()

        def __call__(self, path, profile):
            self.begun += 1
            self.threads.append(threading.current_thread())
            self.started.set()
            assert self.release.wait(30)
            return opened(path, profile)

        async def begins(self):
            assert await asyncio.to_thread(self.started.wait, 30)

    opened = snapshot_module._open
    held = Opening()
    monkeypatch.setattr(snapshot_module, "_open", held)
    yield held
    held.release.set()


@pytest.fixture
def replaced(bundle):
    """Return a `ReloadingBundle` whose file has been replaced."""
    reloading = ReloadingBundle(bundle({"url": "/", "payload": b"one"}))
    replace(Path(reloading.absolute), bundle({"url": "/", "payload": b"two"}, name="two.wbn").read_bytes())
    return reloading


async def test_cancelled_wait_does_not_cancel_the_load(replaced, opening):
    first = replaced.snapshot
    waiting = asyncio.create_task(replaced.renew(at_once=True))
    await opening.begins()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert replaced.snapshot is first
    opening.release.set()
    await replaced.renew(at_once=True)
    assert replaced.snapshot is not first
    assert opening.begun == 1


async def test_check_does_not_wait_and_loads_once(replaced, opening):
    first = replaced.snapshot
    for _ in range(10):
        replaced.check(at_once=True)
        await asyncio.sleep(0)
    await opening.begins()
    assert replaced.snapshot is first
    opening.release.set()
    await replaced.renew()
    assert replaced.snapshot is not first
    assert opening.begun == 1


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError(), RuntimeError("no thread")])
def test_load_that_failed_for_lack_of_resources_is_repeated(replaced, messages, monkeypatch, error):
    replaced._log = messages.append
    first = replaced.snapshot

    def fail(path, profile):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_module, "_open", fail)
        assert renewed(replaced) is first
        assert renewed(replaced) is first
    assert len(messages) == 1
    assert renewed(replaced) is not first


def test_file_replaced_after_the_check_is_loaded_once(replaced, bundle, monkeypatch):
    again = bundle({"url": "/", "payload": b"three"}, name="three.wbn")

    def opened_late(path, profile, opened=snapshot_module._open):
        again.rename(path)
        return opened(path, profile)

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_module, "_open", opened_late)
        third = renewed(replaced)
    assert replaced.is_current
    assert renewed(replaced) is third
