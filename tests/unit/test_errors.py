"""Tests of all exceptions, also of those defined outside `headgate.errors`."""

import copy
import importlib
import inspect
import pickle
import pkgutil
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

import headgate
from headgate.agent.httpx_transport import _Held
from headgate.errors import FormatError, HeadgateError, reason_of

SAMPLES = {"status": 429, "code": importlib.import_module("h2.errors").ErrorCodes.PROTOCOL_ERROR, "offset": 17,
           "release_time": 100.5, "now": 99.0, "pause": 2.5, "error_type": "dns_timeout",
           "reason": "advice_disallowed"}  # fmt: skip
"""Arguments by the names of parameters; every other parameter gets its name."""


def subclasses(cls: type[Exception]) -> Iterator[type[Exception]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def errors() -> list[type[Exception]]:
    for module in pkgutil.walk_packages(headgate.__path__, "headgate."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    # The class for httpx and httpx2 is made for one of them when it is needed; its own test pickles it.
    return sorted({HeadgateError, *subclasses(HeadgateError)} - {_Held, *subclasses(_Held)}, key=repr)


def sample(cls: type[Exception]) -> Exception:
    """Make an error with a value for each parameter."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        if parameter.kind == parameter.KEYWORD_ONLY:
            named[name] = SAMPLES.get(name, name)
        elif parameter.kind != parameter.VAR_KEYWORD:
            positional.append(SAMPLES.get(name, name))
    return cls(*positional, **named)


def fields(error: Exception) -> tuple[Any, ...]:
    return type(error), error.args, str(error), vars(error)


def test_errors_can_be_pickled_and_copied() -> None:
    for cls in errors():
        error = sample(cls)
        error.add_note("seen")
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert fields(pickle.loads(pickle.dumps(error, protocol))) == fields(error)
        assert fields(copy.copy(error)) == fields(copy.deepcopy(error)) == fields(error)


def test_changed_attribute_is_kept() -> None:
    error = FormatError("a reason", step="3.3 step 2", offset=3, fallback_url="https://example.com/")
    error.offset += 10
    again = pickle.loads(pickle.dumps(error))
    assert (again.reason, again.step, again.offset, again.fallback_url) == (
        "a reason", "3.3 step 2", 13, "https://example.com/",
    )  # fmt: skip
    assert str(again) == str(error) == "a reason at byte 13 (3.3 step 2); try https://example.com/ instead"


def test_reason_of_an_error_has_no_numbers(tmp_path):
    files = {"empty": b"", "garbage": b"garbage", "directory": None}
    expected = {
        "empty": "not a PEM file of the expected kind",
        "garbage": "not a PEM file of the expected kind",
        "directory": "Is a directory",
        "missing": "No such file or directory",
    }
    for name, content in files.items():
        (tmp_path / name).mkdir() if content is None else (tmp_path / name).write_bytes(content)
    for name, reason in expected.items():
        with pytest.raises(OSError) as caught:  # noqa: PT011  # the text differs between the rows
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / name)
        assert reason_of(caught.value) == reason, name
    with pytest.raises(OSError) as caught:  # noqa: PT011  # its text is what is tested
        ssl.create_default_context(cafile=tmp_path / "empty")
    assert reason_of(caught.value) == "no certificate or crl found"
    assert reason_of(ValueError("embedded null byte")) == "embedded null byte"
