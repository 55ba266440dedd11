import sys

import httpx
import httpx2
import pytest

from headgate.agent.httpx_library import byte_stream, default_library, library_of
from headgate.errors import ConfigurationError, MissingExtra

LIBRARIES = [httpx2, httpx]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_told_by_what_is_made_of_it(library):
    class Mine(library.Request):
        pass

    assert library_of(library.Request("GET", "https://a.example/")) is library
    assert library_of(Mine("GET", "https://a.example/")) is library
    with library.Client() as client:
        assert library_of(client) is library


def test_anything_else_is_of_neither():
    with pytest.raises(ConfigurationError, match="a dict is neither of httpx2 nor of httpx"):
        library_of({})


def test_httpx2_is_taken_first_then_httpx_and_the_lack_of_both_names_the_extra(monkeypatch):
    assert default_library("fetching") is httpx2
    monkeypatch.setitem(sys.modules, "httpx2", None)
    assert default_library("fetching") is httpx
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtra, match=r"fetching needs the extra 'httpx2'"):
        default_library("fetching")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_body_is_of_both_kinds_of_its_library_and_is_closed(library):
    closed = []
    body = byte_stream(library)(iter([b"a", b"b"]), lambda: closed.append(True))
    assert isinstance(body, library.SyncByteStream)
    assert isinstance(body, library.AsyncByteStream)
    assert byte_stream(library) is byte_stream(library)
    response = library.Response(200, stream=body)
    assert response.read() == b"ab"
    assert closed == [True]
