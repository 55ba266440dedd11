"""The requests of a log in memory: for each identifier the times of its requests."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from headgate.cli.access_log import MAX_LINE_SIZE, Malformed, Parser
from headgate.cli.output import decode_with_escapes, printable

_BATCH = 512
"""Lines that are parsed at once; if one of them must be parsed alone, all are."""
_SHOWN = 80
"""Bytes of a malformed line that are shown."""


def _new_times() -> "array[float]":
    return array("d")


class RequestLog:
    """The times of requests by identifier, in eight bytes each."""

    def __init__(self) -> None:
        self.malformed = 0
        """Lines that could not be parsed."""
        self.first_malformed = ""
        """The error of the first malformed line; empty if there is none."""
        self.damage = ""
        """The reason why reading stopped before the end of the log; empty if it did not."""
        self._times: defaultdict[bytes, array[float]] = defaultdict(_new_times)
        self._lines = 0

    def __len__(self) -> int:
        """The number of requests."""
        return sum(map(len, self._times.values()))

    @property
    def identifiers(self) -> int:
        """The number of identifiers."""
        return len(self._times)

    def read(
        self, source: Iterable[Sequence[bytes]], parser: Parser, report: Callable[[str], None] | None = None
    ) -> None:
        """Add all requests in the lines of `source`; call `report` with the error of each malformed line.

        If the compressed data is damaged, its rest counts as one malformed line, and `damage` has the reason.
        """
        try:
            for lines in source:
                for start in range(0, len(lines), _BATCH):
                    self._read_batch(lines[start : start + _BATCH], parser, report)
        except Malformed as error:
            self.malformed += 1
            self.damage = f"after line {self._lines} {error}; the lines before it are counted"

    def _read_batch(self, batch: Sequence[bytes], parser: Parser, report: Callable[[str], None] | None) -> None:
        is_short = len(batch[0]) <= MAX_LINE_SIZE  # of the lines read at once, only the first can be longer
        requests = parser.parse_batch(batch) if is_short else None
        if requests is None:
            self._read_lines(batch, parser, report)
        else:
            times = self._times
            for moment, identifier in requests:
                times[identifier].append(moment)
        self._lines += len(batch)

    def _read_lines(self, batch: Sequence[bytes], parser: Parser, report: Callable[[str], None] | None) -> None:
        for number, line in enumerate(batch, start=self._lines + 1):
            text = line.strip()
            if not text:
                continue
            try:
                if len(text) > MAX_LINE_SIZE:
                    raise Malformed(f"longer than {MAX_LINE_SIZE} bytes")
                self.add(*parser.parse(text))
            except Malformed as error:
                self.malformed += 1
                sentence = f"line {number}: {error}: {printable(decode_with_escapes(text[:_SHOWN]))}"
                self.first_malformed = self.first_malformed or sentence
                if report is not None:
                    report(sentence)

    def add(self, moment: float, identifier: bytes) -> None:
        """Add one request."""
        self._times[identifier].append(moment)

    def __iter__(self) -> Iterator[tuple[bytes, Sequence[float]]]:
        """Yield each identifier, in the order first seen, with the times of its requests in the order of the log."""
        return iter(self._times.items())
