"""The small sections again, once their readers have refused them: each thing in one on its own (3.3.2 to 3.3.4)."""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from headgate.bundle.format.cbor import ARRAY, MAP, UINT, CborError, array, data, head, text
from headgate.bundle.format.section_url import SectionError
from headgate.bundle.format.sections import read_critical, read_signatures
from headgate.bundle.lint.passage import Passage

__all__ = ["walk_critical", "walk_signatures"]


class _Kind(NamedTuple):
    """What one of the two lists of signatures holds."""

    written: Callable[[bytes], bytes]
    """Gives a section with nothing in it but this map."""
    good: Mapping[bytes, bytes]
    """A map that is taken: from encoded key to encoded value."""

    def read(self, entries: Mapping[bytes, bytes]) -> None:
        """Let the section's reader read these entries; raises `CborError`."""
        pairs = [key + value for key, value in sorted(entries.items())]
        read_signatures(self.written(head(MAP, len(pairs)) + b"".join(pairs)))


_NOTHING: Final = array([])
_AUTHORITY: Final = _Kind(lambda item: array([array([item]), _NOTHING]), {text("cert"): data(b"")})
_VOUCHED_SUBSET: Final = _Kind(
    lambda item: array([_NOTHING, array([item])]),
    {text("sig"): data(b""), text("signed"): data(b""), text("authority"): head(UINT, 0)},
)


def walk_critical(passage: Passage, known: Collection[str]) -> None:
    """Note every name in it that is unknown here, or no name."""
    names = passage.enter(ARRAY)
    for start, end in passage.items(*names) if names else ():
        try:
            read_critical(array([passage.source[start:end]]), known)
        except (CborError, SectionError) as error:
            passage.refused(error, start)


def walk_signatures(passage: Passage) -> None:
    """Note every entry of every authority and vouched subset that is refused."""
    lists = passage.enter(ARRAY)
    if lists is None:
        return
    position, count = lists
    if count != 2:
        passage.refused(CborError(f"an array has {count} items where 2 belong", "3.5.1 step 5", 0))
    kinds = (_AUTHORITY, _VOUCHED_SUBSET)
    for (begin, _), kind in zip(passage.items(position, min(count, 2)), kinds, strict=False):
        entered = passage.enter(ARRAY, begin)
        for start, _ in passage.items(*entered) if entered else ():
            _walk_map(passage, start, kind)


def _walk_map(passage: Passage, start: int, kind: _Kind) -> None:
    """Try each entry in a map that is otherwise good, then whether all are there that must be."""
    entered = passage.enter(MAP, start)
    if entered is None:
        return
    present: dict[bytes, bytes] = {}
    seen = 0
    for begin, middle, end in passage.entries(*entered):
        key, value = passage.source[begin:middle], passage.source[middle:end]
        seen += 1
        try:
            kind.read({**kind.good, key: value})
        except CborError as error:
            passage.refused(error, begin)
            value = kind.good.get(key, b"")
        if key in kind.good:
            present[key] = value
    if seen == entered[1]:
        try:
            kind.read(present)
        except CborError as error:
            passage.refused(error, start)
