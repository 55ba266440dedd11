"""What signing has coded is served as it was before, or refused."""

import asyncio
import gzip
import hashlib

import pytest

from headgate.errors import ResponseError
from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.origin.bundle import BundleApp, BundleServer, BundleSnapshot, GateBundles, Lifeboat, ReloadingBundle
from headgate.origin.bundle.representation import SMALL
from headgate.origin.bundle.snapshot import MiContent
from tests import signers
from tests.webbundles import BIG, HTML, PAGE

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
def test_a_signed_site_is_served_as_it_was_before(bundle, signed, method, fields):
    plain, coded = front(bundle(*SITE, name="plain.wbn")), front(signed())
    for target in TARGETS:
        before, after = (one.answer(method, b"127.0.0.1", target, list(fields)) for one in (plain, coded))
        # What has no tag of its own has one by file and place.
        tags = [dict(one.fields).pop(b"etag", b"").rpartition(b"-")[0] for one in (before, after)]
        assert all(tags) or tags == [b"", b""]
        heads = [[one for one in found.fields if not (all(tags) and one[0] == b"etag")] for found in (before, after)]
        assert (after.status, heads[1]) == (before.status, heads[0]), target
        assert body(after) == body(before)


def test_any_part_of_what_is_sent_from_the_file_is_right(signed):
    found = ask(signed(), b"/long").source
    assert isinstance(found, MiContent)
    for start, stop in [(0, 1), (4095, 4097), (4096, 8192), (1, len(LONG)), (len(LONG), len(LONG)), (9, 9)]:
        assert found.read(start, stop) == LONG[start:stop]
        assert found.cut(start, stop).read() == LONG[start:stop]
        assert found.cut(start, stop).length == stop - start
    inner = found.cut(10, 70_000).cut(5, 60_000)
    assert inner.read() == LONG[15:60_010]
    assert inner.read(4000, 5000) == LONG[4015:5015]


def test_a_range_of_what_was_long_is_a_range_of_what_it_was(signed):
    path = signed()
    part = ask(path, b"/big", (b"range", b"bytes=1000000-3000000"))
    assert (part.status, dict(part.fields)[b"content-range"]) == (206, b"bytes 1000000-3000000/%d" % len(BIG))
    assert body(part) == BIG[1_000_000:3_000_001]


@pytest.mark.parametrize("url", ["/", "/long", "/big", "/gone"])
def test_what_was_changed_is_refused(signed, url):
    path = signed(changed=[url])
    site = front(path)
    for fields in ([], [(b"range", b"bytes=0-1")]):
        for method in (b"GET", b"HEAD"):
            refused = site.answer(method, b"127.0.0.1", url.encode(), fields)
            assert refused.status == 502
            assert b"is not what its digest says at byte" in refused.body
    assert ask(path, b"/short").body == SHORT


def test_a_lifeboat_takes_a_signed_site_as_it_was_before(signed):
    shelf = GateBundles({}, [Lifeboat(ReloadingBundle(signed(changed=["/short", "/big"])))])
    rescued = shelf.rescue(request(b"/"))
    assert (rescued.status, rescued.body) == (200, PAGE)
    fields = dict(rescued.fields)
    assert fields[b"etag"] == b'"home"'
    assert b"content-encoding" not in fields
    assert b"digest" not in fields
    assert body(shelf.rescue(request(b"/long"))) == LONG
    assert shelf.rescue(request(b"/short")) is None
    assert shelf.rescue(request(b"/big")) is None


def test_a_server_of_asgi_gets_the_content_in_pieces(signed):
    app = BundleApp(signed(), unpack=True)
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return await asyncio.Event().wait()

    extensions = {"http.response.zerocopysend": {}, "http.response.pathsend": {}}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/big",
        "headers": [],
        "query_string": b"",
        "extensions": extensions,
    }
    asyncio.run(app(scope, receive, send))
    assert dict(sent[0]["headers"])[b"content-length"] == b"%d" % len(BIG)
    assert b"".join(message["body"] for message in sent[1:]) == BIG
    assert len(sent) > 10


def test_what_is_long_is_checked_before_anybody_asks_and_once(signed, monkeypatch):
    site = front(signed(changed=["/big"]))
    path = signed()
    fine = front(path)

    def never(*_):
        raise AssertionError("hashed while somebody waits")

    monkeypatch.setattr(hashlib, "sha256", never)
    for _ in range(3):
        assert site.answer(b"GET", b"a", b"/big", []).status == 502
        assert body(fine.answer(b"GET", b"a", b"/big", [])) == BIG
    with pytest.raises(AssertionError):
        fine.answer(b"GET", b"a", b"/long", [])


def test_responses_inside_one_another_are_not_read_for_ever(signed):
    """Preparing reads no more than the file has, whatever its index says."""
    snapshot = BundleSnapshot(signed())
    asked = []
    original = snapshot.head

    def head(location):
        asked.append(location)
        return original(location)

    place = snapshot.metadata.requests[BASE + "/big"]
    for number in range(50):
        snapshot.metadata.requests[f"{BASE}/{number}"] = type(place)(place.offset - number, place.length)
    snapshot.head = head
    snapshot.prepare()
    assert sum(location.length for location in asked) <= snapshot.file.size


def test_a_refusal_says_where_in_the_file(signed, tmp_path):
    plain = signed(changed=["/"]).read_bytes()
    block = bytes.fromhex("8448f09f968bf09f93a644326200 00a16b77656242756e646c654964") + b"\x61x" + b"\x80"
    path = tmp_path / "signed.swbn"
    path.write_bytes(block + plain)
    snapshot = BundleSnapshot(path)
    location = snapshot.metadata.requests[BASE + "/"]
    with pytest.raises(ResponseError) as caught:
        snapshot.content(location, snapshot.head(location))
    assert path.read_bytes()[caught.value.offset :].startswith(PAGE[:-1])


def test_overwritten_file_is_not_served(signed):
    path = signed()
    site = front(path)
    with path.open("ab") as file:
        file.write(b"x")
    assert site.answer(b"GET", b"a", b"/long", []).status == 503
