import mmap

import pytest

from headgate.agent.bundle.fetcher import Download
from headgate.errors import FetchError

URL = "https://a.example/x.wbn"


def test_mapped_bytes_outlive_the_download():
    with Download(URL, {}, max_bytes=10) as download:
        download.add(b"abc")
        download.add(b"defg")
        kept = download.mapped()
    assert isinstance(kept, mmap.mmap)
    assert kept[:] == b"abcdefg"


def test_empty_download():
    with Download(URL, {}, max_bytes=10) as download:
        assert download.mapped() == b""


def test_bodies_over_the_limit_are_refused_by_their_length_or_while_they_arrive():
    for stated in ("11", "9" * 30):
        with pytest.raises(FetchError, match="longer than the limit of 10 bytes"):
            Download(URL, {"content-length": stated}, max_bytes=10)
    for stated in ("10", "", "many", "-5"):
        with Download(URL, {"content-length": stated}, max_bytes=10) as download:
            download.add(b"x" * 10)
            with pytest.raises(FetchError, match="longer than the limit of 10 bytes"):
                download.add(b"x")
