import sys

import httpx
import httpx2
import pytest

from headgate.agent.httpx_library import default_library, library_of
from headgate.errors import ConfigurationError, MissingExtra

LIBRARIES = [httpx2, httpx]


@pytest.mark.parametrize("library", LIBRARIES)
def test_objects_are_assigned_to_their_library(library):
    class Mine(library.Request):
        pass

    assert library_of(library.Request("GET", "https://a.example/")) is library
    assert library_of(Mine("GET", "https://a.example/")) is library
    with library.Client() as client:
        assert library_of(client) is library


def test_objects_of_other_libraries_are_refused():
    with pytest.raises(ConfigurationError, match="a dict is neither of httpx2 nor of httpx"):
        library_of({})


def test_httpx2_is_preferred_and_without_either_the_extra_is_named(monkeypatch):
    assert default_library("fetching") is httpx2
    monkeypatch.setitem(sys.modules, "httpx2", None)
    assert default_library("fetching") is httpx
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtra, match=r"fetching needs the extra 'httpx2'"):
        default_library("fetching")
