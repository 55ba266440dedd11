import pytest

from headgate.agent.bundle.download import Download
from headgate.errors import FetchError
from tests.bundle_site import SERVED

URL = "https://a.example/x.wbn"
FIELDS = {name.lower(): value for name, value in SERVED.items()}


def begun(status=200, **changed):
    fields = {**FIELDS, **{name.replace("_", "-"): value for name, value in changed.items()}}
    return Download(URL, status, fields, max_bytes=10)


def test_file_outlives_the_download():
    with begun() as download:
        download.add(b"abc")
        download.add(b"defg")
        kept = download.take()
    assert kept.read(0, 100) == b"abcdefg"
    with begun() as download:
        assert download.take().size == 0


def test_bodies_over_the_limit_are_refused():
    for stated in ("11", "9" * 30):
        with pytest.raises(FetchError, match="longer than the limit of 10 bytes"):
            begun(content_length=stated)
    for stated in ("10", "", "many", "-5"):
        with begun(content_length=stated) as download:
            download.add(b"x" * 10)
            with pytest.raises(FetchError, match="longer than the limit of 10 bytes"):
                download.add(b"x")


def test_other_statuses_are_refused_and_keep_retry_after():
    for status in (204, 206, 404, 503):
        with pytest.raises(FetchError, match=f"answered {status}, expected a bundle") as refused:
            begun(status, retry_after="120")
        assert refused.value.retry_after == "120"


@pytest.mark.parametrize(
    ("changed", "is_accepted"),
    [
        ({"content_type": "Application/WebBundle; v=b2"}, True),
        ({"content_type": "application/webbundles"}, False),
        ({"content_type": ""}, False),
        ({"x_content_type_options": " NoSniff , x"}, True),
        ({"x_content_type_options": "x, nosniff"}, False),
        ({"content_encoding": "Identity"}, True),
        ({"content_encoding": "gzip"}, False),
    ],
)
def test_header_fields_decide_whether_it_is_served_as_a_bundle(changed, is_accepted):
    if is_accepted:
        with begun(**changed):
            pass
    else:
        with pytest.raises(FetchError):
            begun(**changed)
