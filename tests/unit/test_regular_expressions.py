"""No regular expression takes more than linear time, whatever text it is given.

Every pattern in the package is attacked with texts derived from itself: something that leads to one of its repetitions,
that repetition's own characters n times for growing n, and something that may make the match fail. Then functions that
read text from peers are attacked as wholes, loops included. A linear match takes a few nanoseconds for each character;
what takes a hundred times as long, three times in a row, is not linear. These tests are deep: they measure time.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from re import _compiler as compiler  # type: ignore[attr-defined] # the parse tree has no public interface
from re import _constants as op  # type: ignore[attr-defined] # same
from re import _parser as parser  # type: ignore[attr-defined] # same
from types import BuiltinMethodType, ModuleType
from typing import Any, NamedTuple

import pytest

import headgate
from headgate.bundle.variants import parse_variants
from headgate.errors import HeadgateError
from headgate.http.fields import split_list
from headgate.http.h1 import ChunkedBody, RequestLimits, parse_request_head, parse_response_head
from headgate.http.media_type import extract_essence, parse_weights
from headgate.limit import Rule
from headgate.origin.request_info import RequestInfo, forwarded_hops, x_forwarded_for_hops
from headgate.origin.routes import Route, Routes, plain_path

pytestmark = pytest.mark.deep

METHODS = ("match", "fullmatch", "search", "findall", "finditer", "sub", "split")
SIZES = (4, 8, 12, 16, 20, 24, 28, 32, 64, 256, 1_024, 4_096, 8_192)
"""How often a text is repeated; by small steps at first, so that an exponential match is found before it takes long."""
LEAST = 0.002
"""Seconds that any match may take."""
EACH = 2e-6
"""Seconds that a match may take for each character."""

# Texts from the operator alone: the path of a key in the configuration.
_NOT_FROM_PEERS = {r"[^.\[\]]+|\[[^\]]*\]"}


class _Use(NamedTuple):
    where: str
    pattern: "re.Pattern[Any]"
    methods: frozenset[str]


# Finding the patterns.


def _modules() -> Iterator[ModuleType]:
    for module in pkgutil.walk_packages(headgate.__path__, "headgate."):
        if not module.name.endswith("__main__"):
            yield importlib.import_module(module.name)


def _held(value: object) -> Iterator[tuple["re.Pattern[Any]", str]]:
    """Give the patterns in a module's variable, and the method where it is one that is bound to its pattern."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
    for one in values:
        if isinstance(one, re.Pattern):
            yield one, ""
        elif isinstance(one, BuiltinMethodType) and isinstance(one.__self__, re.Pattern):
            yield one.__self__, one.__name__


def _uses() -> list[_Use]:
    """Find every pattern in the package, and by which methods it is used."""
    found: dict[tuple[Any, int], _Use] = {}

    def note(where: str, pattern: "re.Pattern[Any]", methods: Iterable[str]) -> None:
        key = pattern.pattern, pattern.flags
        known = found.get(key, _Use(where, pattern, frozenset()))
        found[key] = known._replace(methods=known.methods.union(methods))

    for module in _modules():
        named: dict[str, set[str]] = {}
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            match node:
                case ast.Call(ast.Attribute(ast.Name("re"), method), [ast.Constant(text), *_]) if method in METHODS:
                    note(f"{module.__name__}:{node.lineno}", re.compile(text), {method})
                case ast.Attribute(ast.Name(name), method) if method in METHODS:
                    named.setdefault(name, set()).add(method)
        for name, value in vars(module).items():
            for pattern, method in _held(value):
                note(f"{module.__name__}.{name}", pattern, {method} if method else named.get(name, set()))
    return [use for use in found.values() if use.pattern.pattern not in _NOT_FROM_PEERS]


# Attacking them.


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
    """Return the characters that one element matches; None for an element that is not of one character."""
    if kind not in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
        return None
    state = parser.State()
    state.flags = flags
    matches = compiler.compile(parser.SubPattern(state, [(kind, value)]), flags).match
    return frozenset(code for code in range(256) if matches(chr(code)))


def _code(codes: Iterable[int]) -> bytes:
    """Choose a character, a readable one if there is one."""
    return bytes([min(codes, key=lambda code: (not chr(code).isalpha() or code > 127, not 32 <= code < 127, code))])


def _classes(tree: Any, flags: int) -> list[bytes]:
    """Choose one of each set of characters that the pattern treats alike."""
    sets: set[frozenset[int]] = set()

    def walk(tree: Any) -> None:
        for kind, value in tree:
            sets.add(characters(kind, value, flags) or frozenset())
            for inner in below(kind, value):
                walk(inner)

    walk(tree)
    alike: dict[frozenset[frozenset[int]], set[int]] = {}
    for code in range(256):
        alike.setdefault(frozenset(one for one in sets if code in one), set()).add(code)
    return [_code(codes) for _, codes in sorted(alike.items(), key=lambda item: (len(item[0]), min(item[1])))]


def _words(tree: Any, flags: int, most: int = 8) -> list[bytes]:
    """Give some of the shortest texts that match."""
    found = [b""]
    for kind, value in tree:
        wanted, inner = characters(kind, value, flags), below(kind, value)
        if wanted is not None:
            more = [_code(wanted)]
        elif kind in (op.ASSERT, op.ASSERT_NOT) or not inner:
            more = [b""]
        else:
            more = [word for one in inner for word in _words(one, flags, 4)]
            if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
                more = [word * value[0] for word in more] if value[0] else [b"", *more[:2]]
        found = list(dict.fromkeys(first + second for first in found for second in more))[:most]
    return found


def _repetitions(tree: Any, flags: int, before: list[bytes]) -> Iterator[tuple[list[bytes], Any]]:
    """Give what is repeated without a bound, and texts that lead there."""
    for kind, value in tree:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and value[1] is op.MAXREPEAT:
            yield before, value[2]
        for inner in below(kind, value):
            yield from _repetitions(inner, flags, before)
        more = _words([(kind, value)], flags, 4)
        before = list(dict.fromkeys(first + second for first in before for second in more))[:3]


def _attacks(tree: Any, flags: int) -> Iterator[tuple[bytes, bytes]]:
    """Give beginnings, and what is to be repeated after them."""
    seen: set[tuple[bytes, bytes]] = set()
    for beginnings, body in _repetitions(tree, flags, [b""]):
        for beginning in beginnings:
            for repeated in sorted({*_classes(body, flags)[1:], *_words(body, flags)} - {b""}):
                if (beginning, repeated) not in seen:
                    seen.add((beginning, repeated))
                    yield beginning, repeated


def _is_slow(work: Callable[[int], object], length: Callable[[int], int]) -> bool:
    """Return whether the work takes longer than a linear one would for some size, three times in a row."""
    return any(all(_seconds(work, n) > LEAST + EACH * length(n) for _ in range(3)) for n in SIZES)


def _seconds(work: Callable[[int], object], n: int) -> float:
    start = time.thread_time()
    with suppress(HeadgateError):
        work(n)
    return time.thread_time() - start


def _weaknesses(use: _Use) -> list[str]:
    """Give the attacks that the pattern takes more than linear time for."""
    pattern, found = use.pattern, []
    tree = parser.parse(pattern.pattern, pattern.flags)
    ends = dict.fromkeys([*_classes(tree, pattern.flags)[:4], b"\n", b"x", b""])
    for method in sorted(use.methods or {"match", "fullmatch"}):
        for beginning, repeated in _attacks(tree, pattern.flags):
            for end in ends:
                texts = [beginning + repeated * n + end for n in SIZES]
                given = texts if isinstance(pattern.pattern, bytes) else [text.decode("latin-1") for text in texts]
                by_size = dict(zip(SIZES, given, strict=True))

                def match(n: int) -> object:
                    text = by_size[n]  # noqa: B023 - called in this iteration
                    found = getattr(pattern, method)(*([text[:0]] if method == "sub" else []), text)  # noqa: B023 - same
                    return list(found) if method == "finditer" else found  # noqa: B023 - same

                if _is_slow(match, lambda n: len(by_size[n])):  # noqa: B023 - same
                    found.append(f"{method} {beginning!r} + {repeated!r} * n + {end!r}")
                    break
    return found


def test_every_pattern_is_linear() -> None:
    assert {use.where: weaknesses for use in _uses() if (weaknesses := _weaknesses(use))} == {}


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (rb"[ \t]*(?:([a-z]+)=([a-z]+))?[ \t]*([;,]|$)", "match"),
        (rb"([a-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*", "fullmatch"),
        (r"\s*[\r\n]+\s*", "sub"),
        (r"(?:a|b|ab)*c", "match"),
        (r"(?:a+)+b", "match"),
        (r"x(?:a*?)*?b", "match"),
        (r"bearer(?: +(.*))?", "fullmatch"),
    ],
)
def test_a_pattern_that_is_not_linear_is_found(pattern: Any, method: str) -> None:
    assert _weaknesses(_Use("", re.compile(pattern), frozenset({method})))


# Functions as wholes.


_REQUEST = b"GET / HTTP/1.1\r\n"
_RESPONSE = b"HTTP/1.1 200 "
_CHUNKS = b"1;" + b" " * 200 + b"\r\nx\r\n"


def read_request(head: bytes) -> object:
    return parse_request_head(head, RequestLimits())


def match_user_agent(value: bytes) -> object:
    info = RequestInfo(b"GET", b"/", b"", [(b"user-agent", value), (b"authorization", value)], "")
    return Routes([Route("a", user_agent="ab"), Route("b", header="Authorization", value="ab")]).match(info)


def read_chunks(data: bytes) -> object:
    return ChunkedBody(framed=True, max_trailers=8192).feed(data)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda text: list(forwarded_hops(text)), lambda n: b"," + b" " * n + b"x"),
        (lambda text: list(forwarded_hops(text)), lambda n: b"for=a;" * n + b" \t" * n + b'x="'),
        (lambda text: list(forwarded_hops(text)), lambda n: b'for="' + b"\\" * n),
        (lambda text: list(x_forwarded_for_hops(text)), lambda n: b" ," * n),
        (read_request, lambda n: _REQUEST + b"Te:" + b" " * n + b"\0\r\n\r\n"),
        (
            read_request,
            lambda n: _REQUEST + b"Te: x" + b" " * n + b"x\r\n\r\n",
        ),
        (
            read_request,
            lambda n: _REQUEST + b"Host: a\r\n" * n + b"\r\n",
        ),
        (read_request, lambda n: b"GET http://" + b"/?" * n + b" HTTP/1.1\r\n\r\n"),
        (
            lambda head: parse_response_head(head),
            lambda n: b"HTTP/1.1 200 " + b" " * n + b"\r\n" + b"a:\r\n" * n + b"\r\n",
        ),
        (read_chunks, lambda n: _CHUNKS * n + b"\n"),
        (
            lambda body: ChunkedBody(framed=True, max_trailers=8192).feed(body),
            lambda n: b"0\r\n" + b"a: b\r\n" * n + b"\r\n",
        ),
        (plain_path, lambda n: b"/%2e/%41//" * n + b"%"),
        (match_user_agent, lambda n: b"ab (a(())" * n),
        (parse_weights, lambda n: b",;q=" * n),
        (lambda text: split_list([text]), lambda n: '"\\,' * n),
        (lambda text: extract_essence([text]), lambda n: "a/b;" + " " * n + '"' * n + ",a/b" * n),
        (parse_variants, lambda n: 'a;"' + "\\" * n + " " * n),
        (Rule.parse, lambda n: "1/" + " " * n + "!"),
    ],
)
def test_functions_that_read_what_peers_send_are_linear(
    function: Callable[[Any], object], text: Callable[[int], Any]
) -> None:
    texts = {n: text(n) for n in SIZES}
    # Loops in Python take longer than a match: ten times as much is allowed.
    assert not _is_slow(lambda n: function(texts[n]), lambda n: 10 * len(texts[n]))


def test_a_function_that_is_not_linear_is_found() -> None:
    assert _is_slow(lambda n: [char for _ in range(n) for char in "x" * n], lambda n: 10 * n)
