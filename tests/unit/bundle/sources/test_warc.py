import builtins
import gzip
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import brotli
import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from headgate.bundle.model import Exchange
from headgate.bundle.sources import warc
from headgate.errors import ConfigurationError, MissingExtra

URL = "https://example.com/"
HTML = [("Content-Type", "text/html")]


class Archive:
    """A WARC, written by warcio as crawlers write theirs."""

    def __init__(self, path: Path, *, packed: bool = True) -> None:
        self.path = path
        self.made = BytesIO()
        self.writer = WARCWriter(self.made, gzip=packed)
        self.writer._create_temp_file = BytesIO  # it forgets to close its own
        self.writer.write_record(self.writer.create_warcinfo_record("a.warc", {"software": "test"}))

    def answer(
        self,
        body: bytes = b"hello",
        url: str = URL,
        *,
        status: str = "200 OK",
        fields: Iterable[tuple[str, str]] = HTML,
        method: str | None = None,
        request_first: bool = True,
        kind: str = "response",
        protocol: str = "HTTP/1.1",
        warc: dict[str, str] | None = None,
        **more: Any,
    ) -> Any:
        head = StatusAndHeaders(status, list(fields), protocol=protocol)
        record = self.writer.create_warc_record(
            url, kind, payload=BytesIO(body), http_headers=head, warc_headers_dict=dict(warc or {}), **more
        )
        if method is None:
            self.writer.write_record(record)
            return record
        asked = StatusAndHeaders(f"{method} / HTTP/1.1", [("Host", "example.com")], is_http_request=True)
        request = self.writer.create_warc_record(url, "request", payload=BytesIO(b""), http_headers=asked)
        request.rec_headers.replace_header("WARC-Concurrent-To", record.rec_headers.get_header("WARC-Record-ID"))
        for each in [request, record] if request_first else [record, request]:
            self.writer.write_record(each)
        return record

    def read(self) -> tuple[dict[str, Exchange], list[str]]:
        self.path.write_bytes(self.made.getvalue())
        return read(self.path)


def read(path: Path) -> tuple[dict[str, Exchange], list[str]]:
    messages: list[str] = []
    exchanges = list(warc(path, tell=messages.append))
    return {exchange.url: exchange for exchange in exchanges}, [line.removeprefix(f"{path}: ") for line in messages]


def payload(exchange: Exchange) -> bytes:
    assert not isinstance(exchange.payload, bytes | Path)
    return b"".join(exchange.payload)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "a.warc.gz")


def the_reason(archive: Archive) -> str:
    found, messages = archive.read()
    assert not found
    assert messages.pop() == "found no exchange to bundle"
    (sentence,) = messages
    return sentence.removeprefix(f"left out '{URL}': ")


@pytest.mark.parametrize("packed", [True, False])
def test_exchanges_are_in_the_order_of_the_archive(packed: bool, tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a.warc", packed=packed)
    archive.answer(fields=[*HTML, ("Server", "x"), ("Set-Cookie", "a=b"), ("Content-Length", "5")], method="GET")
    archive.answer(b"", f"{URL}moved", status="301 Moved Permanently", fields=[("Location", "/")])
    archive.answer(b"\x89PNG" * 50_000, f"{URL}a.png", fields=[("content-type", "image/png")])
    found, messages = archive.read()
    assert list(found) == [URL, f"{URL}moved", f"{URL}a.png"]
    assert found[URL].status == 200
    assert found[URL].headers == {"content-type": "text/html", "server": "x"}
    assert payload(found[URL]) == b"hello"
    assert found[f"{URL}moved"].headers == {"location": "/", "content-type": "application/octet-stream"}
    assert payload(found[f"{URL}a.png"]) == b"\x89PNG" * 50_000
    assert not messages


def test_archive_in_a_single_gzip_member_is_read(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a.warc.gz", packed=False)
    archive.answer()
    archive.answer(b"two", f"{URL}2")
    archive.path.write_bytes(gzip.compress(archive.made.getvalue()))
    assert list(read(archive.path)[0]) == [URL, f"{URL}2"]


CHUNKS = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [b"hel", b"lo"]) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"hello")),
        ("br", brotli.compress(b"hello")),
        ("identity", b"hello"),
        ("gzip, br", brotli.compress(gzip.compress(b"hello"))),
        ("gzip", b"hello"),  # stored without its coding
    ],
)
@pytest.mark.parametrize("chunked", [True, False])
def test_content_codings_are_removed(coding: str, body: bytes, chunked: bool, archive: Archive) -> None:
    fields = [*HTML, ("Content-Encoding", coding), ("ETag", '"x"'), ("Content-Length", "99")]
    if chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        fields.append(("Transfer-Encoding", "chunked"))
    archive.answer(body, fields=fields)
    (exchange,) = archive.read()[0].values()
    assert exchange.headers == {"content-type": "text/html", "etag": 'W/"x"'}
    assert payload(exchange) == b"hello"


def test_chunked_bodies_are_joined(archive: Archive) -> None:
    fields = [*HTML, ("Transfer-Encoding", "chunked"), ("Content-Length", "99")]
    archive.answer(CHUNKS, fields=fields)
    archive.answer(b"undone", f"{URL}b", fields=fields)
    found, _ = archive.read()
    assert [payload(exchange) for exchange in found.values()] == [b"hello", b"undone"]


def test_long_bodies_are_read(archive: Archive) -> None:
    archive.answer(bytes(3 << 20))
    assert payload(archive.read()[0][URL]) == bytes(3 << 20)


@pytest.mark.parametrize(
    ("fields", "body", "reason"),
    [
        ([("Content-Encoding", "zopfli")], b"hello", "in the content coding 'zopfli', which is not supported"),
        ([("Content-Encoding", "gzip, gzip, gzip, gzip")], b"hello", "in too many content codings"),
        ([("Content-Encoding", "gzip")], gzip.compress(b"hello" * 99)[:-9], "cut short within its content coding"),
        (
            [("Content-Encoding", "gzip")],
            gzip.compress(b"hello")[:-8] + b"\xff" * 8,
            "damaged within its content coding",
        ),
        ([("Transfer-Encoding", "gzip, chunked")], CHUNKS, "a transfer coding other than chunked"),
        ([("Transfer-Encoding", "chunked")], CHUNKS[:-7], "cut short"),
        ([("Content-Length", "6")], b"hello", "cut short"),
        ([("Content-Range", "bytes 0-4/9")], b"hello", "206: a part of a response"),
    ],
)
def test_body_without_content_is_left_out(
    fields: list[tuple[str, str]], body: bytes, reason: str, archive: Archive
) -> None:
    status = "206 Partial Content" if "Content-Range" in dict(fields) else "200 OK"
    archive.answer(body, fields=fields, status=status)
    assert the_reason(archive) == reason


def test_body_may_exceed_its_content_length(archive: Archive) -> None:
    archive.answer(fields=[*HTML, ("Content-Length", "2")])
    archive.answer(url=f"{URL}b", fields=[*HTML, ("Content-Length", "9" * 5_000)])
    archive.answer(url=f"{URL}c", fields=[*HTML, ("Content-Length", "soon")])
    assert len(archive.read()[0]) == 3


def test_decompression_bomb_is_left_out(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.modules["headgate.bundle.sources.warc"], "MAX_PAYLOAD", 1_000_000)
    archive.answer(gzip.compress(bytes(1_000_001)), fields=[*HTML, ("Content-Encoding", "gzip")])
    archive.answer(gzip.compress(bytes(1_000_000)), f"{URL}b", fields=[*HTML, ("Content-Encoding", "gzip")])
    found, messages = archive.read()
    assert list(found) == [f"{URL}b"]
    assert messages == [f"left out '{URL}': a body of more than 1000000 bytes"]


@pytest.mark.parametrize(
    ("url", "status", "reason"),
    [
        (URL, "304 Not Modified", "304: the response is missing, it was in a cache"),
        ("dns:example.com", "200 OK", "not http or https"),
    ],
)
def test_unfit_responses_are_left_out(url: str, status: str, reason: str, archive: Archive) -> None:
    archive.answer(url=url, status=status)
    found, messages = archive.read()
    assert not found
    assert messages[0] == f"left out {url!r}: {reason}"


@pytest.mark.parametrize("request_first", [True, False])
@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS"])
def test_only_responses_to_get_are_used(method: str, request_first: bool, archive: Archive) -> None:
    archive.answer(method=method, request_first=request_first)
    archive.answer(b"got", f"{URL}b", method="GET", request_first=request_first)
    found, messages = archive.read()
    assert list(found) == [f"{URL}b"]
    assert messages == [f"left out '{URL}': not a GET request"]


def test_response_may_refer_to_its_request(archive: Archive) -> None:
    asked = StatusAndHeaders("POST / HTTP/1.1", [("Host", "example.com")], is_http_request=True)
    request = archive.writer.create_warc_record(URL, "request", payload=BytesIO(b""), http_headers=asked)
    archive.writer.write_record(request)
    archive.answer(warc={"WARC-Concurrent-To": request.rec_headers.get_header("WARC-Record-ID")})
    assert the_reason(archive) == "not a GET request"


def test_last_successful_response_is_kept(archive: Archive) -> None:
    archive.answer(b"first")
    archive.answer(b"second")
    archive.answer(b"down", status="503 Service Unavailable")
    found, messages = archive.read()
    assert payload(found[URL]) == b"second"
    assert len(messages) == 1
    assert messages[0].startswith("left out 2, such as")


@pytest.mark.parametrize("status", ["200 OK", "304 Not Modified"])
@pytest.mark.parametrize("by", ["digest", "record"])
def test_revisit_gets_the_payload_it_refers_to(status: str, by: str, archive: Archive) -> None:
    fields = [*HTML, ("Content-Encoding", "gzip"), ("A", "b")]
    first = archive.answer(gzip.compress(b"hello"), fields=fields)
    digest = first.rec_headers.get_header("WARC-Payload-Digest")
    head = StatusAndHeaders(status, [*HTML, ("Content-Encoding", "gzip"), ("C", "d")], protocol="HTTP/1.1")
    revisit = archive.writer.create_revisit_record(f"{URL}copy", digest, URL, "2021-10-01T12:41:40Z", head)
    if by == "record":
        revisit.rec_headers.replace_header("WARC-Payload-Digest", "sha1:UNKNOWN")
        revisit.rec_headers.replace_header("WARC-Refers-To", first.rec_headers.get_header("WARC-Record-ID"))
    archive.writer.write_record(revisit)
    found, messages = archive.read()
    assert payload(found[f"{URL}copy"]) == b"hello"
    assert found[f"{URL}copy"].status == 200
    own = {"c": "d"} if status == "200 OK" else {"a": "b"}
    assert found[f"{URL}copy"].headers == {"content-type": "text/html", **own}
    assert not messages


def test_revisit_without_http_head_is_used(archive: Archive) -> None:
    first = archive.answer()
    digest = first.rec_headers.get_header("WARC-Payload-Digest")
    archive.writer.write_record(archive.writer.create_revisit_record(f"{URL}copy", digest, URL, "2021-10-01T12:41:40Z"))
    assert payload(archive.read()[0][f"{URL}copy"]) == b"hello"


@pytest.mark.parametrize("digest", ["sha1:ELSEWHERE", ""])
def test_revisit_of_another_archive_is_left_out(digest: str, archive: Archive) -> None:
    archive.answer(url=f"{URL}b", warc={"WARC-Payload-Digest": ""})
    revisit = archive.writer.create_revisit_record(URL, "sha1:ELSEWHERE", URL, "2021-10-01T12:41:40Z")
    revisit.rec_headers.replace_header("WARC-Payload-Digest", digest)
    archive.writer.write_record(revisit)
    found, messages = archive.read()
    assert list(found) == [f"{URL}b"]
    assert messages == [f"left out '{URL}': a revisit of what is not in this archive"]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("WARC-Truncated", "the archive has only its beginning"),
        ("WARC-Segment-Number", "in segments of several records"),
    ],
)
def test_truncated_and_segmented_records_are_left_out(field: str, reason: str, archive: Archive) -> None:
    archive.answer(warc={field: "1"})
    assert the_reason(archive) == reason


def test_other_record_types_are_ignored(archive: Archive) -> None:
    for kind in ["resource", "metadata", "conversion"]:
        record = archive.writer.create_warc_record(URL, kind, payload=BytesIO(b"x"), warc_content_type="text/plain")
        archive.writer.write_record(record)
    assert archive.read() == ({}, ["found no exchange to bundle"])


def test_non_http_response_is_left_out(archive: Archive) -> None:
    archive.answer(status="ready", protocol="220")
    assert the_reason(archive) == "not an HTTP response"


@pytest.mark.parametrize("packed", [True, False])
def test_truncated_archive_is_used_up_to_the_cut(
    packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = Archive(tmp_path / "a.warc", packed=packed)
    archive.answer()
    whole = archive.made.tell()
    archive.answer(bytes(range(256)) * 4_000, f"{URL}b")
    everything = archive.made.getvalue()
    for end in range(whole + 4, len(everything) - 4, max(1, (len(everything) - whole) // 40)):
        archive.path.write_bytes(everything[:end])
        found, messages = read(archive.path)
        assert list(found) == [URL]
        assert messages
    assert capsys.readouterr() == ("", "")


def test_damage_is_reported_and_ends_reading(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    archive.answer()
    archive.made.write(gzip.compress(b"this is no record\r\n\r\n" * 5))
    archive.answer(url=f"{URL}b")
    found, messages = archive.read()
    assert list(found) == [URL]
    (sentence,) = messages
    reason = "the next record is invalid"
    assert sentence == f"the archive is damaged; only the part before the damage is used: {reason}"
    assert capsys.readouterr() == ("", "")


def test_wrong_record_length_is_reported_as_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = Archive(tmp_path / "a.warc", packed=False)
    archive.answer()
    archive.answer(b"x" * 77_777, f"{URL}b")
    whole = archive.made.getvalue()
    start = whole.rindex(b"Content-Length: ") + len(b"Content-Length: ")
    for length in [b"0", b"-5", b"x", b"99999999999", b"70000"]:
        archive.path.write_bytes(whole[:start] + length + whole[whole.index(b"\r\n", start) :])
        found, messages = read(archive.path)
        assert URL in found
        assert messages
    assert capsys.readouterr() == ("", "")


def test_record_without_length_is_reported_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://example.com/\r\n\r\nHTTP/1.1 200\r\n"
    )
    found, messages = read(path)
    assert not found
    assert "a record has no Content-Length" in messages[0]


@pytest.mark.parametrize("endless", [b"x", b"A: b\r\n", b"\r\n"])
def test_endless_record_head_is_reported_as_damage(endless: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    first = Archive(path, packed=False)
    first.answer()
    path.write_bytes(first.made.getvalue() + b"WARC/1.0\r\n" * (endless != b"\r\n") + endless * 2_000_000)
    found, messages = read(path)
    assert list(found) == [URL]
    assert "the head of a record is too long" in messages[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it begins with b''"),
        (b"<html>", "it begins with b'<html'"[:21]),
        (gzip.compress(b"<html>"), "it begins with"),
        (b"filedesc://a.arc 0.0.0.0 20211001124140 text/plain 76\n", "it begins with b'filed'"),
        (b"\x1f\x8b\x08", "it begins with"),
    ],
)
def test_invalid_warc_is_refused_at_once(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is not a WARC") as refused:
        warc(path)
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["missing.warc", "."])
def test_unreadable_warc_is_reported_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read"):
        warc(tmp_path / name)


def without(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name.partition(".")[0] == module:
            raise ImportError(name)
        return real(name, *args, **options)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", missing)


def test_missing_warcio_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "warcio")
    with pytest.raises(MissingExtra, match=r"\.\[warc\]"):
        warc(tmp_path / "a.warc")


def test_body_in_br_needs_the_br_extra(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.answer(brotli.compress(b"hello"), fields=[*HTML, ("Content-Encoding", "br")])
    without(monkeypatch, "brotli")
    with pytest.raises(MissingExtra, match=r"\.\[br\]"):
        archive.read()
