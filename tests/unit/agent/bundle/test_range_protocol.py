import pytest

from headgate.agent.bundle.range_protocol import LengthChecked, RangeRequest, Resource, check_served
from headgate.errors import FetchError

URL = "https://a.example/x.wbn"
SERVED = {"content-type": "application/webbundle;v=b1", "x-content-type-options": "nosniff"}


def resource(**fields):
    """A resource of 100 bytes whose first ten are there."""
    known = Resource("https://before.example/")
    assert known.judge(RangeRequest(0, 10), 206, {**SERVED, "content-range": "bytes 0-9/100", **fields}, url=URL) == 10
    return known


@pytest.mark.parametrize(
    ("ask", "written"),
    [(RangeRequest(0, 10), "bytes=0-9"), (RangeRequest(7, 1), "bytes=7-7"), (RangeRequest(None, 9), "bytes=-9")],
)
def test_range_field_of_a_request(ask, written):
    assert ask.range == written
    assert Resource(URL).fields(ask) == {"Range": written, "Accept-Encoding": "identity"}


def test_first_response_sets_url_and_length():
    known = resource()
    assert (known.url, known.length) == (URL, 100)


@pytest.mark.parametrize(
    ("ask", "message", "length"),
    [
        (RangeRequest(0, 10), "bytes 0-9/100", 10),
        (RangeRequest(0, 200), "bytes 0-99/100", 100),
        (RangeRequest(90, 20), "Bytes  90-99/100", 10),
        (RangeRequest(None, 9), "bytes 91-99/100", 9),
        (RangeRequest(None, 900), "bytes 0-99/100", 100),
    ],
)
def test_length_is_that_of_the_existing_part(ask, message, length):
    assert Resource(URL).judge(ask, 206, {**SERVED, "content-range": message}, url=URL) == length


@pytest.mark.parametrize(
    "message",
    [
        "bytes 1-10/100",
        "bytes 0-8/100",
        "bytes 0-10/100",
        "bytes 9-0/100",
        "bytes 0-9/9",
        "bytes 0-9/*",
        "bytes */100",
        "bytes 0-9",
        "items 0-9/100",
        "bytes 0-9/١٠٠",
        "bytes 0-9/99999999999999999999",
        "bytes=0-9/100",
        "",
    ],
)
def test_other_content_range_is_refused(message):
    with pytest.raises(FetchError, match=r"x\.wbn"):
        Resource(URL).judge(RangeRequest(0, 10), 206, {**SERVED, "content-range": message}, url=URL)


def test_empty_part_is_refused():
    with pytest.raises(FetchError, match="requested bytes=10-14, got"):
        Resource(URL).judge(RangeRequest(10, 5), 206, {**SERVED, "content-range": "bytes 10-9/10"}, url=URL)


def test_whole_resource_is_accepted_as_first_response_only():
    assert Resource(URL).judge(RangeRequest(0, 10), 200, SERVED, url=URL) is None
    with pytest.raises(FetchError, match="was replaced while it was being read"):
        resource().judge(RangeRequest(10, 10), 200, SERVED, url=URL)


def test_empty_resource_has_length_0():
    empty = Resource(URL)
    assert empty.judge(RangeRequest(0, 10), 416, {"content-range": "bytes */0"}, url=URL) == 0
    assert empty.length == 0
    with pytest.raises(FetchError, match="answered 416"):
        Resource(URL).judge(RangeRequest(0, 10), 416, {"content-range": "bytes */5"}, url=URL)


@pytest.mark.parametrize("status", [204, 301, 403, 404, 500])
def test_other_statuses_are_refused(status):
    with pytest.raises(FetchError, match=f"answered {status}"):
        Resource(URL).judge(RangeRequest(0, 10), status, SERVED, url=URL)


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (206, {"content-range": "bytes 10-19/101"}),
        (206, {"content-range": "bytes 10-19/100", "etag": '"two"'}),
        (206, {"content-range": "bytes 10-19/100", "etag": '"one"', "last-modified": "later"}),
        (412, {}),
        (416, {"content-range": "bytes */5"}),
    ],
)
def test_replaced_resource_is_reported(status, fields):
    known = resource(etag='"one"', **{"last-modified": "then"})
    with pytest.raises(FetchError, match="was replaced while it was being read; open it again"):
        known.judge(RangeRequest(10, 10), status, fields, url=URL)


def test_later_responses_need_only_content_range():
    known = resource(etag='"one"', **{"last-modified": "then"})
    assert known.judge(RangeRequest(10, 10), 206, {"content-range": "bytes 10-19/100"}, url=URL) == 10


@pytest.mark.parametrize(("etag", "sent"), [('"one"', '"one"'), ('W/"one"', None), ("", None)])
def test_strong_etag_is_sent_in_if_range(etag, sent):
    assert resource(etag=etag).fields(RangeRequest(10, 10)).get("If-Range") == sent


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip"])
def test_ranges_with_a_content_coding_are_refused(coding):
    with pytest.raises(FetchError, match="expected none"):
        resource().judge(
            RangeRequest(10, 10), 206, {"content-range": "bytes 10-19/100", "content-encoding": coding}, url=URL
        )
    with pytest.raises(FetchError, match="expected none"):
        Resource(URL).judge(RangeRequest(0, 10), 200, {**SERVED, "content-encoding": coding}, url=URL)


@pytest.mark.parametrize(
    ("fields", "is_served"),
    [
        ({}, True),
        ({"content-type": "Application/WebBundle ; v=b2"}, True),
        ({"x-content-type-options": "NoSniff, whatever"}, True),
        ({"content-type": "application/octet-stream"}, False),
        ({"content-type": "application/webbundles"}, False),
        ({"content-type": ""}, False),
        ({"x-content-type-options": ""}, False),
        ({"x-content-type-options": "whatever, nosniff"}, False),
    ],
)
def test_media_type_and_nosniff_are_required(fields, is_served):
    served = {**SERVED, **fields}
    check_served(URL, served, require_nosniff=False)
    if is_served:
        check_served(URL, served, require_nosniff=True)
    else:
        with pytest.raises(FetchError, match=r"^https://a\.example/x\.wbn: "):
            check_served(URL, served, require_nosniff=True)


def test_only_the_first_response_is_checked_for_its_type():
    with pytest.raises(FetchError, match="nosniff"):
        Resource(URL).judge(RangeRequest(0, 10), 200, {"content-type": "application/webbundle"}, url=URL)
    lax = Resource(URL, require_nosniff=False)
    assert lax.judge(RangeRequest(0, 10), 206, {"content-range": "bytes 0-9/100"}, url=URL) == 10


def test_body_must_have_the_announced_length():
    counted = LengthChecked(URL, 3)
    assert counted.take(b"ab") == b"ab"
    with pytest.raises(FetchError, match="ended after 2 of 3 bytes"):
        counted.end()
    counted.take(b"c")
    counted.end()
    with pytest.raises(FetchError, match="longer than the 3 bytes"):
        counted.take(b"d")
