import pytest

from headgate.agent.bundle.transport_core import make_response, parse_request

PAGE = {
    "content-type": "text/html",
    "etag": '"page"',
    "last-modified": "Sun, 06 Nov 1994 08:49:37 GMT",
    "vary": "Accept-Encoding",
    "x-content-type-options": "nosniff",
}
LENGTH = 1000


def answer(method="GET", *, status=200, stored=PAGE, length=LENGTH, **fields):
    """Return the response to a request with these fields from a stored one."""
    request = parse_request(method, {name.replace("_", "-"): value for name, value in fields.items()})
    assert request is not None
    found = make_response(request, status, stored, length)
    if found is None:
        return None
    headers = {name.decode(): value.decode("latin-1") for name, value in found.fields}
    return found.status, headers, found.start, found.stop


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("POST", {}),
        ("PUT", {}),
        ("OPTIONS", {}),
        ("QUERY", {}),
        ("get", {}),
        ("GET", {"content-length": "3"}),
        ("GET", {"transfer-encoding": "chunked"}),
        ("GET", {"if-match": '"page"'}),
        ("GET", {"if-unmodified-since": "Sun, 06 Nov 1994 08:49:37 GMT"}),
        ("GET", {"cache-control": "no-cache"}),
        ("GET", {"cache-control": "max-stale, No-Store"}),
        ("HEAD", {"cache-control": "max-age=0"}),
        ("GET", {"cache-control": "max-age = 60"}),
        ("GET", {"cache-control": "min-fresh=1"}),
        ("GET", {"pragma": "no-cache"}),
    ],
)
def test_requests_that_need_the_origin_are_not_answered(method, fields):
    assert parse_request(method, fields) is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"content-length": "0"},
        {"cache-control": "max-stale"},
        {"pragma": "no-cache", "cache-control": "no-transform"},
    ],
)
def test_plain_requests_are_answered(fields):
    for method in ("GET", "HEAD"):
        request = parse_request(method, fields)
        assert request is not None
        assert not request.only_stored


def test_only_if_cached_is_recognized():
    request = parse_request("GET", {"cache-control": "only-if-cached"})
    assert request is not None
    assert request.only_stored


def test_whole_response_has_length_and_source():
    status, headers, start, stop = answer()
    assert (status, start, stop) == (200, 0, LENGTH)
    assert headers == {**PAGE, "headgate-source": "bundle", "content-length": "1000"}


def test_head_has_the_fields_of_get():
    assert answer("HEAD") == (200, {**PAGE, "headgate-source": "bundle", "content-length": "1000"}, 0, 0)


def test_connection_fields_and_stored_length_are_dropped():
    stored = {**PAGE, "transfer-encoding": "chunked", "connection": "close", "content-length": "7", "upgrade": "h2c"}
    status, headers, _, _ = answer(stored=stored)
    assert (status, headers) == (200, {**PAGE, "headgate-source": "bundle", "content-length": "1000"})


@pytest.mark.parametrize("status", [204, 205, 304])
def test_statuses_without_content_have_no_length(status):
    found, headers, start, stop = answer(status=status, length=5)
    assert (found, start, stop) == (status, 0, 0)
    assert "content-length" not in headers


def test_matching_etag_gives_304():
    status, headers, start, stop = answer(if_none_match='"page"')
    assert (status, start, stop) == (304, 0, 0)
    assert headers == {
        "etag": '"page"', "vary": "Accept-Encoding", "x-content-type-options": "nosniff", "headgate-source": "bundle",
    }  # fmt: skip
    assert answer(if_none_match='"other"') == answer()


def test_single_range_gives_206():
    status, headers, *part = answer(range="bytes=5-5000", if_range='"page"')
    assert (status, part) == (206, [5, 1000])
    assert (headers["content-range"], headers["content-length"]) == ("bytes 5-999/1000", "995")
    assert answer(range="bytes=0-1", if_range='"other"') == answer()


def test_range_after_the_end_gives_416():
    status, headers, start, stop = answer(range="bytes=1000-")
    assert (status, start, stop) == (416, 0, 0)
    assert headers == {
        "x-content-type-options": "nosniff", "headgate-source": "bundle", "content-range": "bytes */1000",
        "content-length": "0",
    }  # fmt: skip


def test_errors_ignore_preconditions_and_ranges():
    found, _, start, stop = answer(status=404, if_none_match='"page"', range="bytes=0-1")
    assert (found, start, stop) == (404, 0, LENGTH)


@pytest.mark.parametrize(
    ("coding", "accepted", "is_readable"),
    [
        (None, "br", True),
        ("identity", "br", True),
        ("gzip", None, True),
        ("gzip", "gzip, br", True),
        ("x-gzip", "gzip", False),  # neither library knows the old name
        ("GZIP", "Gzip;q=0.5", True),
        ("gzip", "*", True),
        ("br", "gzip", False),
        ("br", "", False),
        ("br", "gzip, br;q=0", False),
        ("br", "*, br;q=0", False),
        ("gzip, br", "gzip", False),
        ("gzip, br", "br, gzip", True),
    ],
)
def test_unaccepted_coding_is_not_answered(coding, accepted, is_readable):
    stored = PAGE if coding is None else {**PAGE, "content-encoding": coding}
    fields = {} if accepted is None else {"accept_encoding": accepted}
    assert (answer(stored=stored, **fields) is not None) == is_readable
