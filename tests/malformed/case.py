"""A case: the bytes of a bundle, and the expected result."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from tests.malformed.parts import PRIMARY, Bundle

Expected = Literal["ok", "format", "version", "response", "either"]


@dataclass(frozen=True)
class Case:
    """One bundle, valid or malformed, and the expected result."""

    name: str
    content: bytes
    expected: Expected
    """"response": the metadata loads, PRIMARY's response is refused and MANIFEST's is not. "either": any answer."""
    step: str = ""
    """A step in the error's `step`; empty: not compared."""
    offset: int | None = None
    """The error's offset, where the document is unambiguous."""
    fallback_url: str | None = None
    compat: Expected | None = None
    """The result with profile compat, where it differs."""
    from_end: bool = False

    def expected_of(self, profile: str) -> Expected:
        """Return the expected result with a profile."""
        return self.compat if profile == "compat" and self.compat else self.expected


def accepted(name: str, bundle: Bundle) -> Case:
    """Return a case that is read whole, with every response."""
    return Case(name, bundle.written(), "ok")


def either(name: str, bundle: Bundle) -> Case:
    """Return a case on which the document is ambiguous: any result will do."""
    return Case(name, bundle.written(), "either")


def refused(name: str, bundle: Bundle, step: str, offset: int | None = None, **more: Any) -> Case:
    """Return a case that is refused: with the fallback URL, unless the step comes before it is known."""
    early = any(step.startswith(f"3.3 step {number}") and len(step) == 10 for number in range(1, 7))
    fallback_url = None if early or bundle.array == b"\x85" else PRIMARY
    expected = "response" if step.startswith(("3.4", "3.6")) else "format"
    settings: dict[str, Any] = {"expected": expected, "fallback_url": fallback_url} | more
    return Case(name, bundle.written(), step=step, offset=offset, **settings)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Name the row of a table in the failure of a test that loops over all rows."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{name}: {error}") from error
