"""Heads of responses that look like one read before: the same header names, their values as long as before.

A site has few such looks, and a bundle of it thousands of responses. The bytes of a head that has been read are
remembered, with a gap for each value that has been seen to vary. A later head is taken if its own values, put into
those gaps, give its very bytes: then the document's way (`parser`) would take it too, but for what it asks of the
values in the gaps, which is checked here. A property test holds the two equal.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Final

from msgspec import Struct

from headgate.bundle.format.cbor import BYTES, MAP, CborError, Items, read_head

__all__ = ["ResponseHeadCache"]

_LESSONS: Final = 512
"""How often something is learned, which takes as long as reading five heads: a stranger decides how many looks are."""
_MOST_ALIKE: Final = 4
"""Looks that begin alike, which are tried one after the other."""
_MOST_HEADERS: Final = 32


class ResponseHeadCache:
    """What is remembered of the responses of one bundle, to be quicker with the next."""

    def __init__(self) -> None:
        # By the first bytes: they tell how long the headers are and, mostly, how many.
        self._looks: dict[bytes, tuple[_Look, ...]] = {}
        self._lessons = _LESSONS

    def read(self, source: bytes, length: int) -> tuple[int, dict[str, str], int] | None:
        """Give status, headers and where the payload begins of a response of `length` bytes; None if it looks new.

        `source` is as much of the response as its head may take; it may be cut, or go on behind it.
        """
        for look in self._looks.get(source[:4], ()):
            if not source.startswith(look.lead):
                continue
            text = source[: look.size].decode("latin-1")
            values = look.values(text)
            # A value with whitespace at an end does not fill its gap; none has a line break (3.6 step 4.3).
            if look.form % tuple(map(str.strip, values)) != text or "\0" in text or "\r" in text or "\n" in text:
                continue
            try:
                major, payload_length, payload_begins = read_head(source, look.size)
            except CborError:
                return None
            if major != BYTES or payload_begins + payload_length != length:
                return None
            headers = look.headers.copy()
            for name, value in zip(look.varying, values):  # noqa: B905 - the values that are padding have no name
                headers[name] = value
            return look.status, headers, payload_begins
        return None

    def learn(self, source: bytes, status: int) -> None:
        """Remember a response that has a content-type and has been taken; `source` is as for `read`."""
        if not self._lessons:
            return
        self._lessons -= 1
        items = Items(source)
        items.array()
        size = items.head(BYTES) + items.position
        if size > len(source) or items.head(MAP) > _MOST_HEADERS:
            return
        text = source[:size].decode("latin-1")
        places = _places(items, size)
        headers = {name: text[place] for name, place in places.items()}
        alike = self._looks.get(source[:4], ())
        same = next((look for look in alike if look.status == status and look.places == places), None)
        if same is None and len(alike) == _MOST_ALIKE:
            return
        others = tuple(look for look in alike if look is not same)
        varying = [name for name in places if same and (name in same.varying or headers[name] != same.headers[name])]
        self._looks[source[:4]] = (*others, _look(text, status, headers, places, varying))


class _Look(Struct, frozen=True):
    size: int
    """Bytes up to the end of the headers."""
    lead: bytes
    """Those up to the first gap."""
    form: str
    """Those bytes as Latin-1, with `%s` for each value that varies."""
    values: Callable[[str], tuple[str, ...]]
    """Takes the values that vary out of such a text."""
    varying: tuple[str, ...]
    """Whose values they are."""
    status: int
    headers: dict[str, str]
    """Those of one response, of which some vary."""
    places: dict[str, slice]


def _places(items: Items, end: int) -> dict[str, slice]:
    """Find where each header's value is; the items have been read before, but for the map's head."""
    places = {}
    while items.position < end:
        name, value = items.data(), items.data()
        if name != b":status":
            places[name.decode()] = slice(items.position - len(value), items.position)
    return places


def _look(text: str, status: int, headers: dict[str, str], places: dict[str, slice], varying: list[str]) -> _Look:
    gaps = [places[name] for name in varying]
    # An itemgetter needs two slices to make a tuple: empty ones behind the text make up for what is missing.
    gaps += [slice(len(text), len(text))] * (2 - len(gaps))
    form, last = "", 0
    for gap in gaps:
        form += text[last : gap.start].replace("%", "%%") + "%s"
        last = gap.stop
    form += text[last:].replace("%", "%%")
    return _Look(
        len(text),
        text[: gaps[0].start].encode("latin-1"),
        form,
        itemgetter(*gaps),
        tuple(varying),
        status,
        headers,
        places,
    )
