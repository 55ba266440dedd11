"""A passage of a bundle that is one item of CBOR, read on whatever is wrong in it.

What is not deterministic is noted at once; what reads the rest brings its own refusals here, to be told as those of the
step that reads the passage, at the bytes of the bundle.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from headgate.bundle.format.cbor import CborError, Items
from headgate.bundle.format.section_url import SectionError
from headgate.bundle.lint.finding import Notes
from headgate.bundle.lint.relaxed import relax, skip

__all__ = ["Passage"]

_Result = TypeVar("_Result")


class Passage:
    """One passage; `step` is the one that parses it, `offset` where it is in the bundle."""

    def __init__(
        self, encoded: bytes, step: str, offset: int, notes: Notes, *, subject: str = "", is_cut: bool = False
    ) -> None:
        self._step = step
        self._offset = offset
        self._notes = notes
        self._subject = subject
        self._relaxed = relax(encoded)
        self.source = self._relaxed.source
        """The item in its deterministic encoding, but for the order of maps."""
        self.is_whole = self._relaxed.is_whole
        faults = self._relaxed.faults
        # That it is cut has been said.
        for fault in faults[:-1] if is_cut and not self.is_whole else faults:
            self._note(fault.reason, f"{step}, {fault.step}", offset + fault.offset)

    def fault(self, reason: str, step: str, position: int, *, code: str = "") -> None:
        """Note what a step of its own refuses at a position of `source`."""
        if self.is_whole or position < len(self.source):
            self._note(reason, step, self._offset + self._relaxed.original(position), code=code)

    def refused(self, error: CborError | SectionError, position: int | None = None, *, code: str = "") -> None:
        """Note what a parser refused: where it says, in `source`, or at `position`.

        Where the passage ended before it should, that has been noted, and nothing is said of what is not there.
        """
        step = f"{self._step}, {error.step}" if isinstance(error, CborError) else error.step
        self.fault(error.reason, step, error.offset if position is None else position, code=code)

    def read(self, reader: Callable[[bytes], _Result]) -> _Result | None:
        """Let a parser of the document read the whole of it; None for what that refuses, noted."""
        try:
            return reader(self.source)
        except (CborError, SectionError) as error:
            self.refused(error)
            return None

    def items(self, position: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield where each of these items begins and ends, as far as there are any."""
        for _ in range(count):
            try:
                end = skip(self.source, position)
            except CborError:
                return
            yield position, end
            position = end

    def entries(self, position: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield where each key of a map begins, and its value, and where that ends; note keys out of order."""
        previous = b""
        for _ in range(count):
            spans = list(self.items(position, 2))
            if len(spans) < 2:
                return
            (start, value), (_, position) = spans
            key = self.source[start:value]
            if key <= previous:
                fault = "appears twice" if key == previous else "is not in order, or appears twice"
                self.refused(CborError(f"the map key {key[:80]!r} {fault}", "3.5.1 step 2", start))
            previous = key
            yield start, value, position

    def enter(self, major: int, position: int = 0) -> tuple[int, int] | None:
        """Give where the contents of an array or a map begin, and how many there are; None for what is none, noted."""
        items = Items(self.source, position)
        try:
            count = items.head(major)
        except CborError as error:
            self.refused(error)
            return None
        return items.position, count

    def _note(self, reason: str, step: str, offset: int, *, code: str = "") -> None:
        self._notes.fault(reason, step, offset, code=code, subject=self._subject)
