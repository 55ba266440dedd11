import json
from pathlib import Path
from typing import Any

import pytest

from headgate.bundle.model import Exchange
from headgate.bundle.sources import har
from headgate.errors import ConfigurationError

URL = "https://example.com/"


def entry(
    url: str = URL, status: int = 200, *, method: str = "GET", headers: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """Return an entry; `more` may have `content`, `at`, and the request's headers as `asked`."""
    asked, answered = (
        [{"name": name, "value": value} for name, value in fields.items()]
        for fields in (more.get("asked", {}), {"Content-Type": "text/html"} if headers is None else headers)
    )
    content = more.get("content", {"size": 5, "mimeType": "text/html", "text": "hello"})
    return {
        "startedDateTime": more.get("at", "2021-10-01T12:41:40.000Z"),
        "time": 12.5,
        "request": {"method": method, "url": url, "headers": asked},
        "response": {"status": status, "statusText": "", "headers": answered, "content": content},
    }


def save(path: Path, *entries: Any, **options: Any) -> Path:
    log = {"version": "1.2", "creator": {"name": "WebInspector", "version": "537.36"}, "pages": [], "entries": entries}
    path.write_text(json.dumps({"log": log}, **options))
    return path


def read(path: Path) -> tuple[dict[str, Exchange], list[str]]:
    messages: list[str] = []
    exchanges = list(har(path, tell=messages.append))
    return {exchange.url: exchange for exchange in exchanges}, messages


def payload(exchange: Exchange) -> bytes:
    assert not isinstance(exchange.payload, bytes | Path)
    return b"".join(exchange.payload)


def alone(tmp_path: Path, *entries: Any) -> tuple[int, dict[str, str], bytes]:
    """Return the one exchange of these entries."""
    found, _ = read(save(tmp_path / "a.har", *entries))
    (exchange,) = found.values()
    return exchange.status, dict(exchange.headers), payload(exchange)


def reasons(tmp_path: Path, *entries: Any) -> list[str]:
    found, messages = read(save(tmp_path / "a.har", *entries))
    assert not found
    assert messages.pop().endswith("found no exchange to bundle; save the HAR with content")
    return [sentence.removeprefix(f"{tmp_path / 'a.har'}: left out ") for sentence in messages]


@pytest.mark.parametrize(
    ("headers", "found"), [({}, "text/css; charset=utf-8"), ({"content-type": "image/png"}, "image/png")]
)
def test_content_type_is_that_of_the_header_or_the_entry(headers: dict[str, str], found: str, tmp_path: Path) -> None:
    content = {"size": 1, "mimeType": "text/css; charset=utf-8", "text": "x"}
    assert alone(tmp_path, entry(headers=headers, content=content))[1]["content-type"] == found


@pytest.mark.parametrize(("text", "size"), [("YWJj", 3), ("YWJj", 4), ("YW\nJj", 4), ("YW\nJj", 5)])
def test_size_may_count_base64_characters(text: str, size: int, tmp_path: Path) -> None:
    content = {"size": size, "mimeType": "image/png", "encoding": "base64", "text": text}
    found, messages = read(save(tmp_path / "a.har", entry(content=content)))
    assert payload(found[URL]) == b"abc"
    assert not messages


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"size": 3, "mimeType": "x/y", "encoding": "base64", "text": "not base64!"}, "a body that is not base64"),
        ({"size": 3, "mimeType": "x/y", "encoding": "base64", "text": "YWJ"}, "a body that is not base64"),
        ({"size": 3, "mimeType": "x/y", "encoding": "base64", "text": "YW!Jj"}, "a body that is not base64"),
        ({"size": 3, "mimeType": "x/y", "encoding": "base64", "text": "é"}, "a body that is not base64"),
        ({"size": 5, "mimeType": "x/y", "encoding": "base64", "text": "YWJj"}, "its body was saved in part"),
        ({"size": 3, "mimeType": "x/y", "encoding": "gzip", "text": "abc"}, "a body in 'gzip', expected base64"),
        ({"size": 9, "mimeType": "text/html", "text": "hello"}, "its body was saved in part"),
        ({"size": 5, "mimeType": "text/html"}, "its body was not saved"),
        ({"mimeType": "text/html", "comment": "Response bodies are not included."}, "its body was not saved"),
        ({}, "its body was not saved"),
        (None, "its body was not saved"),
    ],
)
def test_missing_body_is_reported(content: Any, reason: str, tmp_path: Path) -> None:
    assert reasons(tmp_path, entry(content=content)) == [f"'{URL}': {reason}"]


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, {"size": 0, "mimeType": "text/css"}),
        (200, {"size": 0, "mimeType": "text/css", "text": ""}),
        (204, {}),
        (301, {"size": 0, "mimeType": "x-unknown"}),
        (302, None),
        (404, {"size": -1}),
    ],
)
def test_empty_body_is_kept(status: int, content: Any, tmp_path: Path) -> None:
    assert alone(tmp_path, entry(status=status, headers={"location": "/x"}, content=content)) == (
        status,
        {"location": "/x", "content-type": "text/css" if status == 200 else "application/octet-stream"},
        b"",
    )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (entry(method="POST"), "not a GET request"),
        (entry(method="HEAD"), "not a GET request"),
        (entry("data:text/plain,x"), "not http or https"),
        (entry(status=0), "without a response"),
        (entry(status=304), "304: the response is missing, it was in a cache"),
        (entry(status=206, headers={"content-range": "bytes 0-4/10"}), "206: a part of a response"),
    ],
)
def test_unfit_entries_are_left_out(wrong: Any, reason: str, tmp_path: Path) -> None:
    assert reasons(tmp_path, wrong) == [f"{wrong['request']['url']!r}: {reason}"]


def test_entries_are_ordered_by_time(tmp_path: Path) -> None:
    later = entry(f"{URL}later", at="2021-10-01T14:41:41.000+02:00")
    found, _ = read(save(tmp_path / "a.har", later, entry(at="2021-10-01T12:41:40Z")))
    assert list(found) == [URL, f"{URL}later"]


def test_requests_with_credentials_are_reported(tmp_path: Path) -> None:
    _, messages = read(
        save(
            tmp_path / "a.har",
            entry(asked={"Cookie": "a=b", "Accept": "*/*"}),
            entry(f"{URL}b", asked={"authorization": "Basic x"}),
            entry(f"{URL}c", asked={"accept": "*/*"}),
            entry(f"{URL}d", method="POST", asked={"cookie": "a=b"}),
        )
    )
    assert any("2 of the requests had cookies or credentials" in sentence for sentence in messages)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"request": {"method": "GET"}},
        [],
        None,
        "entry",
        {"request": {"method": "GET", "url": 7}, "response": {"status": 200}},
        {"request": {"method": "GET", "url": URL}, "response": {"status": "ok"}},
        {"request": {"method": "GET", "url": URL}, "response": {"status": 200, "content": {"text": 7}}},
    ],
)
def test_malformed_entry_does_not_affect_others(broken: Any, tmp_path: Path) -> None:
    found, messages = read(save(tmp_path / "a.har", broken, entry()))
    assert list(found) == [URL]
    assert len(messages) == 1
    assert "'an entry': malformed" in messages[0]


def test_common_deviations_from_har_are_accepted(tmp_path: Path) -> None:
    odd: Any = {
        "request": {"method": "get", "url": URL, "headers": None},
        "response": {
            "status": "200",
            "headers": [{"name": "A", "value": None}],
            "content": {"size": "2", "text": "hi"},
        },
    }
    path = save(tmp_path / "a.har", odd)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found, _ = read(path)
    assert payload(found[URL]) == b"hi"
    assert found[URL].headers == {"a": "", "content-type": "application/octet-stream"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"<html>",
        b"[]",
        b"{}",
        b'{"log": {}}',
        b'{"log": {"entries": {}}}',
        b'{"log": {"entries": [}}',
        b"\xff\xfe{\x00",
        b'{"log": {"entries": [], "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
        b'{"log": {"entries": [' + b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"]}}",
    ],
)
def test_invalid_har_is_refused_at_once(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.har"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as refused:
        har(path)
    assert str(refused.value).startswith(f"{path} is not a HAR: ")
    assert "\n" not in str(refused.value)


def test_har_over_the_limit_is_refused_at_once(tmp_path: Path) -> None:
    path = save(tmp_path / "a.har", entry())
    size = path.stat().st_size
    assert len(list(har(path, max_bytes=size))) == 1
    with pytest.raises(ConfigurationError, match=f"has more than {size - 1} bytes"):
        har(path, max_bytes=size - 1)


def test_entry_with_invalid_utf_8_does_not_affect_others(tmp_path: Path) -> None:
    path = save(tmp_path / "a.har", entry(content={"size": 1, "text": "SPOIL"}), entry(f"{URL}b"))
    path.write_bytes(path.read_bytes().replace(b"SPOIL", b"\xff"))
    found, messages = read(path)
    assert list(found) == [f"{URL}b"]
    assert len(messages) == 1
