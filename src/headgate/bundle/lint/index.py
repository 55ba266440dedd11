"""The index again, once its reader has refused it: each entry on its own, and in it the URL and the value (3.3.1)."""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from headgate.bundle.format.cbor import ARRAY, BYTES, MAP, UINT, CborError, Items, text
from headgate.bundle.format.index import Index, IndexRules, read_entry
from headgate.bundle.format.section_url import SectionError, section_url
from headgate.bundle.lint.finding import MIXUP
from headgate.bundle.lint.passage import Passage
from headgate.bundle.model import Location, Section, VariantSet

__all__ = ["Listed", "ListedIndex", "listed_index", "walk_index"]

_ELSEWHERE: Final = text("https://elsewhere.invalid/")
"""Stands in for an entry's key while its value is read."""
_ENDLESS: Final = 1 << 66
"""A section that every location is in: which is not, is asked of each on its own."""


class Listed(NamedTuple):
    """A response that the index lists."""

    location: Location
    url: str
    key: str | None
    variants: str | None


class ListedIndex(NamedTuple):
    """What could be made of an index."""

    urls: Collection[str]
    """In normal form, in the order of the index."""
    responses: list[Listed]
    is_whole: bool
    """Whether these are all."""


def listed_index(requests: Index) -> ListedIndex:
    """Give what an index has that nothing is wrong with."""
    responses = [listed for url, found in requests.items() for listed in _listed(url, found)]
    return ListedIndex(requests.keys(), responses, is_whole=True)


def walk_index(passage: Passage, rules: IndexRules) -> ListedIndex:
    """Note everything that is wrong with an index, and give what it has all the same."""
    walk = _Walk(passage, rules)
    entered = passage.enter(MAP)
    count = 0
    for start, middle, end in passage.entries(*entered) if entered else ():
        count += 1
        walk.entry(start, middle, end)
    is_whole = walk.is_whole and entered is not None and count == entered[1]
    return ListedIndex(walk.urls.keys(), walk.responses, is_whole)


class _Walk:
    def __init__(self, passage: Passage, rules: IndexRules) -> None:
        self.urls: dict[str, None] = {}
        self.responses: list[Listed] = []
        self.is_whole = True
        self._passage = passage
        self._rules = rules
        endless = Section("responses", rules.responses.offset, _ENDLESS)
        self._value_rules = IndexRules(endless, rules.has_variants, None)

    def entry(self, start: int, middle: int, end: int) -> None:
        """Walk one entry; one whose URL is refused still has responses."""
        url = self._url(start)
        found = list(self._value(url, start, self._passage.source[middle:end], middle))
        self.is_whole = self.is_whole and bool(found)
        section = self._rules.responses
        for listed in found:
            offset, length = listed.location.offset - section.offset, listed.location.length
            if offset + length <= section.length:
                self.responses.append(listed)
                continue
            fault = f"a response at {offset} of {length} bytes ends behind the {section.length} bytes of its section"
            self._passage.fault(fault, "3.3.1 step 3.1", start)

    def _url(self, start: int) -> str:
        """Give what to call the entry: its URL or, where that is refused, its key as it stands."""
        items = Items(self._passage.source, start)
        written = ""
        try:
            written = items.text()
            url = section_url(written, self._rules.base_url, "3.3.1 step 4.2", start)
            if url in self.urls:
                raise SectionError(f"the URL {url[:200]} appears twice", "3.3.1 step 4.3.2", start)
        except (CborError, SectionError) as error:
            self.is_whole = self.is_whole and bool(written)
            self._passage.refused(error)
            return written[:200]
        self.urls[url] = None
        return url

    def _value(self, url: str, start: int, value: bytes, position: int) -> Iterator[Listed]:
        requests: Index = {}
        try:
            read_entry(Items(_ELSEWHERE + value), self._value_rules, requests)
        except SectionError as error:
            self._passage.refused(error, start)
        except CborError as error:
            mixed = _other_version(value, has_variants=self._rules.has_variants)
            fault = CborError(f"{error.reason}{mixed}", error.step, position + error.offset - len(_ELSEWHERE))
            self._passage.refused(fault, code=MIXUP if mixed else "")
        for found in requests.values():
            yield from _listed(url, found)
        if not requests:
            for offset, length in _pairs(value):
                yield Listed(Location(self._rules.responses.offset + offset, length), url, None, None)


def _listed(url: str, found: Location | VariantSet) -> Iterator[Listed]:
    if isinstance(found, Location):
        yield Listed(found, url, None, None)
    else:
        for key, location in found.locations.items():
            yield Listed(location, url, key, found.variants)


def _other_version(value: bytes, *, has_variants: bool) -> str:
    """Say, as the rest of a sentence, if a value that was refused is one of the other version."""
    items = Items(value)
    try:
        count = items.head(ARRAY)
    except CborError:
        return ""
    if has_variants and count == 2 and items.peek() == UINT:
        return "; this is b2's index in a b1 bundle"
    if not has_variants and count > 2 and items.peek() == BYTES:
        return "; this is b1's index in a b2 bundle"
    return ""


def _pairs(value: bytes) -> Iterator[tuple[int, int]]:
    """Yield what may be meant for offset and length in a value of any shape."""
    items = Items(value)
    try:
        items.array()
        if items.peek() == BYTES:
            items.data()
        while items.peek() >= 0:
            yield items.uint(), items.uint()
    except CborError:
        return
