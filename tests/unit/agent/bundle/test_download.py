import mmap

import pytest

from headgate.agent.bundle.download import Download
from headgate.errors import FetchError

URL = "https://a.example/x.wbn"


def test_what_was_kept_outlives_the_download():
    with Download(URL, {}, most=10) as download:
        download.add(b"abc")
        download.add(b"defg")
        kept = download.mapped()
    assert isinstance(kept, mmap.mmap)
    assert kept[:] == b"abcdefg"


def test_nothing_is_kept_of_nothing():
    with Download(URL, {}, most=10) as download:
        assert download.mapped() == b""


def test_what_is_too_much_is_refused_before_it_comes_and_when_it_does():
    for said in ("11", "9" * 30):
        with pytest.raises(FetchError, match="more than the 10 bytes"):
            Download(URL, {"content-length": said}, most=10)
    for said in ("10", "", "many", "-5"):
        with Download(URL, {"content-length": said}, most=10) as download:
            download.add(b"x" * 10)
            with pytest.raises(FetchError, match="more than the 10 bytes"):
                download.add(b"x")
