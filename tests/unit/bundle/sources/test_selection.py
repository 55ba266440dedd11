import pytest

from headgate.bundle.model import Exchange
from headgate.bundle.sources.selection import (
    LatestPerUrl,
    SkipExchange,
    SkipReport,
    as_complete_response,
    check_status,
    normalize_http_url,
)


def answer(url: str, status: int, payload: bytes = b"") -> Exchange:
    return Exchange(url, status, {}, payload)


@pytest.mark.parametrize(
    ("statuses", "stays"),
    [
        ([200, 200], 1),
        ([200, 503], 0),
        ([503, 200], 1),
        ([404, 410], 1),
        ([200, 301, 204, 500], 2),
    ],
)
def test_of_a_url_the_last_success_stays_or_else_the_last(statuses: list[int], stays: int) -> None:
    left_out = SkipReport()
    chosen = LatestPerUrl(left_out)
    answers = [answer("https://a/", status, bytes([number])) for number, status in enumerate(statuses)]
    for exchange in answers:
        chosen.add(exchange)
    assert list(chosen) == [answers[stays]]
    assert len(chosen) == 1
    told: list[str] = []
    left_out.tell(told.append, where="x")
    assert len(told) == 1
    assert "several responses" in told[0]


def test_a_url_stays_where_it_was_first_seen() -> None:
    chosen = LatestPerUrl(SkipReport())
    for url in ["https://a/", "https://a/b", "https://a/"]:
        chosen.add(answer(url, 200))
    assert [exchange.url for exchange in chosen] == ["https://a/", "https://a/b"]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.com/a#part", "https://example.com/a"),
        ("HTTP://EXAMPLE.com:80", "http://example.com/"),
        ("https://example.com/a?b#", "https://example.com/a?b"),
    ],
)
def test_a_url_is_in_normal_form_and_without_its_fragment(text: str, url: str) -> None:
    assert normalize_http_url(text) == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a URL"),
        ("/relative", "not a URL"),
        ("https://", "not a URL"),
        ("data:text/plain,a", "not http or https"),
        ("blob:https://example.com/1", "not http or https"),
        ("wss://example.com/", "not http or https"),
        ("chrome-extension://abc/x.js", "not http or https"),
        ("https://me@example.com/", "a user name or a password"),
    ],
)
def test_some_urls_are_not_for_a_bundle(text: str, reason: str) -> None:
    with pytest.raises(SkipExchange, match=reason):
        normalize_http_url(text)


@pytest.mark.parametrize("status", [200, 204, 206, 301, 404, 500, 999])
def test_most_answers_can_stand_alone(status: int) -> None:
    check_status(status)


@pytest.mark.parametrize("status", [-1, 0, 99, 100, 103, 304, 1000])
def test_some_answers_mean_nothing_without_their_request(status: int) -> None:
    with pytest.raises(SkipExchange):
        check_status(status)


def test_a_range_that_is_everything_is_the_whole() -> None:
    headers = {"content-range": "bytes 0-9/10", "content-type": "video/mp4"}
    assert as_complete_response(206, headers, 10) == (200, {"content-type": "video/mp4"})
    assert as_complete_response(200, headers, 3) == (200, headers)


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("bytes 0-9/20", 10),
        ("bytes 10-19/20", 10),
        ("bytes 0-9/*", 10),
        ("bytes 0-9/10", 9),
        ("bytes */10", 10),
        ("", 10),
        (f"bytes 0-{'9' * 5000}/10", 10),
    ],
)
def test_any_other_range_is_a_part(value: str, length: int) -> None:
    with pytest.raises(SkipExchange, match="206"):
        as_complete_response(206, {"content-range": value}, length)
