"""Counts the steps of a regular expression: a backtracking matcher that does what `re` does, and counts.

`re` reports no steps, and a test must not depend on time. `CountingPattern` stands in for a compiled pattern: it gives
the results of `re`, and adds to `steps` one for each comparison, repetition and retry of a matcher that walks the
same parse tree. The two must agree on where a match ends; otherwise the counting one is wrong, and says so.
"""

import re
from collections.abc import Callable, Iterator
from re import _constants as op  # type: ignore[attr-defined] # the parse tree has no public interface
from re import _parser as parser  # type: ignore[attr-defined] # same
from typing import Any

METHODS = ("match", "fullmatch", "search", "findall", "finditer", "sub", "split")

_Continue = Callable[[int], int]
"""Matches the rest of a pattern from a position; returns where the match ends, -1 for none."""
_Node = Callable[[int, _Continue], int]

_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s", op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_ALL = frozenset(range(256))
_WORD = frozenset(code for code in range(128) if chr(code).isalnum() or chr(code) == "_")


class TooManySteps(Exception):
    """A match took more steps than `bound`."""


class CountingPattern:
    """Stands in for `pattern`; text is limited to the characters below 256, and groups cannot be referred to."""

    def __init__(self, pattern: "re.Pattern[Any]", *, bound: int = 1_000_000) -> None:
        self.pattern = pattern
        self.bound = bound
        self.steps = 0
        self._text: tuple[int, ...] = ()
        self._tree = parser.parse(pattern.pattern, pattern.flags)
        self._start = _sequence(self, list(self._tree), pattern.flags)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pattern, name)

    def match(self, text: Any, position: int = 0, end: int | None = None) -> Any:
        return self._one(text, position, end, whole=False)

    def fullmatch(self, text: Any, position: int = 0, end: int | None = None) -> Any:
        return self._one(text, position, end, whole=True)

    def search(self, text: Any, position: int = 0, end: int | None = None) -> Any:
        text = text if end is None else text[:end]
        self._read(text)
        found = next(self._spans(position), None)
        result = self.pattern.search(text, position)
        assert (result and result.span()) == found, f"counted wrongly: {self.pattern.pattern!r} on {text!r}"
        return result

    def findall(self, text: Any, position: int = 0) -> Any:
        self._all(text, position)
        return self.pattern.findall(text, position)

    def finditer(self, text: Any, position: int = 0) -> Any:
        self._all(text, position)
        return self.pattern.finditer(text, position)

    def sub(self, replacement: Any, text: Any) -> Any:
        self._all(text, 0)
        return self.pattern.sub(replacement, text)

    def split(self, text: Any) -> Any:
        self._all(text, 0)
        return self.pattern.split(text)

    def step(self, count: int = 1) -> None:
        """Count, within the bound."""
        self.steps += count
        if self.steps > self.bound:
            raise TooManySteps(f"{self.pattern.pattern!r} took more than {self.bound} steps")

    def _read(self, text: Any) -> None:
        self._text = tuple(text.encode("latin-1") if isinstance(text, str) else bytes(text))

    def _one(self, text: Any, position: int, end: int | None, *, whole: bool) -> Any:
        text = text if end is None else text[:end]
        self._read(text)
        found = self._match_at(position, whole=whole)
        result = (self.pattern.fullmatch if whole else self.pattern.match)(text, position)
        assert (result.end() if result else -1) == found, f"counted wrongly: {self.pattern.pattern!r} on {text!r}"
        return result

    def _all(self, text: Any, position: int) -> None:
        self._read(text)
        found = list(self._spans(position))
        really = [match.span() for match in self.pattern.finditer(text, position)]
        assert really == found, f"counted wrongly: {self.pattern.pattern!r} on {text!r}"

    def _match_at(self, position: int, *, whole: bool) -> int:
        length = len(self._text)
        return self._start(position, lambda at: at if not whole or at == length else -1)

    def _spans(self, position: int) -> Iterator[tuple[int, int]]:
        """Give the spans of all matches, each looked for where the one before it ended."""
        avoided = -1  # an empty match is not followed by another one at its place
        while position <= len(self._text):
            self.step()
            end = self._start(position, _unless_at(avoided))
            if end < 0:
                position += 1
                continue
            yield position, end
            avoided = end if end == position else -1
            position = end

    # What the nodes ask for.

    def at(self, position: int, wanted: frozenset[int]) -> bool:
        """Compare one character."""
        self.step()
        return position < len(self._text) and self._text[position] in wanted

    def is_at(self, position: int, place: Any, *, multiline: bool) -> bool:
        """Compare a position with a place such as the end of the text."""
        self.step()
        length, text = len(self._text), self._text
        if place in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return position == 0 or (multiline and place is op.AT_BEGINNING and text[position - 1] == 10)
        if place is op.AT_END_STRING:
            return position == length
        if place is op.AT_END:
            newline = position < length and text[position] == 10
            return position == length or (newline and (multiline or position == length - 1))
        if place is op.AT_BOUNDARY:
            before = position > 0 and text[position - 1] in _WORD
            return before != (position < length and text[position] in _WORD)
        raise NotImplementedError(place)


def below(kind: Any, value: Any) -> list[Any]:
    """Return the sequences of elements inside one element of a parse tree."""
    if kind is op.BRANCH:
        return list(value[1])
    if kind is op.SUBPATTERN:
        return [value[3]]
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return [value[2]]
    if kind is op.ATOMIC_GROUP:
        return [value]
    return [value[1]] if kind in (op.ASSERT, op.ASSERT_NOT) else []


def characters(kind: Any, value: Any, flags: int) -> frozenset[int] | None:
    """Return the characters that one element compares with; None for an element that is not of one character."""
    if kind is op.LITERAL:
        return _cased({value}, flags)
    if kind is op.NOT_LITERAL:
        return _ALL - _cased({value}, flags)
    if kind is op.ANY:
        return _ALL if flags & re.DOTALL else _ALL - {10}
    if kind is not op.IN:
        return None
    found: set[int] = set()
    for part, what in value:
        if part is op.LITERAL:
            found.add(what)
        elif part is op.RANGE:
            found.update(range(what[0], min(what[1], 255) + 1))
        elif part is op.CATEGORY:
            # In bytes, and with re.ASCII, a category has no character beyond ASCII.
            category = re.compile(_CATEGORIES[what], flags & re.ASCII if flags & re.UNICODE else re.ASCII)
            found.update(code for code in _ALL if category.match(chr(code)))
    wanted = _cased(found, flags)
    return _ALL - wanted if value[0][0] is op.NEGATE else wanted


def _unless_at(avoided: int) -> Callable[[int], int]:
    return lambda at: at if at != avoided else -1


def _cased(codes: set[int], flags: int) -> frozenset[int]:
    if not flags & re.IGNORECASE:
        return frozenset(codes)
    return frozenset(
        other for code in codes for case in (str.lower, str.upper) if (other := ord(case(chr(code))[0])) < 256
    )


def _sequence(counter: CountingPattern, elements: list[Any], flags: int) -> _Node:
    nodes = [_node(counter, kind, value, flags) for kind, value in elements]

    def follow(index: int, position: int, then: _Continue) -> int:
        if index == len(nodes):
            return then(position)
        return nodes[index](position, lambda at: follow(index + 1, at, then))

    return lambda position, then: follow(0, position, then)


def _node(counter: CountingPattern, kind: Any, value: Any, flags: int) -> _Node:
    wanted = characters(kind, value, flags)
    if wanted is not None:
        return lambda at, then: then(at + 1) if counter.at(at, wanted) else -1
    if kind is op.AT:
        multiline = bool(flags & re.MULTILINE)
        return lambda at, then: then(at) if counter.is_at(at, value, multiline=multiline) else -1
    if kind is op.SUBPATTERN:
        _, added, removed, group = value
        return _sequence(counter, list(group), (flags | added) & ~removed)
    if kind is op.BRANCH:
        return _branch([_sequence(counter, list(option), flags) for option in value[1]])
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        least, most, repeated = value
        body = _sequence(counter, list(repeated), flags)
        if kind is op.POSSESSIVE_REPEAT:
            return _possessive(counter, body, least, most)
        if (
            kind is op.MAX_REPEAT
            and len(repeated) == 1
            and characters(repeated[0][0], repeated[0][1], flags) is not None
        ):
            return _greedy_of_one(counter, body, least, most)
        return (_greedy if kind is op.MAX_REPEAT else _lazy)(counter, body, least, most)
    if kind is op.ATOMIC_GROUP:
        return _atomic(_sequence(counter, list(value), flags))
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return _assertion(_sequence(counter, list(value[1]), flags), value, wanted=kind is op.ASSERT)
    raise NotImplementedError(kind)


def _branch(nodes: list[_Node]) -> _Node:
    return lambda at, then: next((end for node in nodes if (end := node(at, then)) >= 0), -1)


def _ends(counter: CountingPattern, body: _Node, most: int, at: int) -> list[int]:
    """Match a node again and again, never coming back to an earlier one; return where each time ends."""
    ends = [at]
    while len(ends) <= most and (end := body(ends[-1], lambda found: found)) > ends[-1]:
        counter.step()
        ends.append(end)
    return ends


def _possessive(counter: CountingPattern, body: _Node, least: int, most: int) -> _Node:
    def once(at: int, then: _Continue) -> int:
        ends = _ends(counter, body, most, at)
        return then(ends[-1]) if len(ends) > least else -1

    return once


def _greedy_of_one(counter: CountingPattern, body: _Node, least: int, most: int) -> _Node:
    """Repeat a node of one character: as `_greedy`, without its recursion."""

    def each(at: int, then: _Continue) -> int:
        for end in reversed(_ends(counter, body, most, at)[least:]):
            counter.step()
            if (found := then(end)) >= 0:
                return found
        return -1

    return each


def _greedy(counter: CountingPattern, body: _Node, least: int, most: int) -> _Node:
    def again(at: int, count: int, then: _Continue) -> int:
        counter.step()

        def once_more(end: int) -> int:
            return again(end, count + 1, then) if end > at or count < least else -1

        if count < most and (end := body(at, once_more)) >= 0:
            return end
        return then(at) if count >= least else -1

    return lambda at, then: again(at, 0, then)


def _lazy(counter: CountingPattern, body: _Node, least: int, most: int) -> _Node:
    def again(at: int, count: int, then: _Continue) -> int:
        counter.step()
        if count >= least and (end := then(at)) >= 0:
            return end
        return body(at, lambda end: again(end, count + 1, then) if end > at else -1) if count < most else -1

    return lambda at, then: again(at, 0, then)


def _atomic(node: _Node) -> _Node:
    """Match a node without what follows it, and never come back to it."""

    def once(at: int, then: _Continue) -> int:
        end = node(at, lambda found: found)
        return then(end) if end >= 0 else -1

    return once


def _assertion(node: _Node, value: Any, *, wanted: bool) -> _Node:
    direction, asserted = value
    width = asserted.getwidth()[0] if direction < 0 else 0

    def look(at: int, then: _Continue) -> int:
        found = at >= width and node(at - width, lambda end: end) >= 0
        return then(at) if found is wanted else -1

    return look
