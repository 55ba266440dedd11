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
from itertools import islice, product
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
SIZES = (8, 12, 16, 20, 24, 28, 32, 64, 256, 4_096)
"""How often a text is repeated; by small steps at first, so that an exponential match is found before it takes long."""
LEAST = 0.002
"""Seconds that any match may take."""
EACH = 2e-6
"""Seconds that a match may take for each character."""
SHORT = 2e-5
"""Seconds that a quadratic match of a text that is repeated 256 times exceeds."""

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


def _attacks(text: str) -> Iterator[tuple[str, str, str]]:
    """Give beginnings, what is to be repeated after them, and ends, from what stands in a pattern and around it."""
    marks = sorted({*re.sub(r"\\[A-Za-z]|[\w\\]", "", text), *" \t"})
    words = [*re.findall(r"[A-Za-z]{3,}", text)[:3], "a", "x"]
    beginnings = dict.fromkeys(["", *words, *(word + mark for word in words for mark in marks)])
    repeated = dict.fromkeys(["a", "0", *marks, *("a" + mark for mark in marks), "ab", "a=a;", "\r\n"])
    return product(beginnings, repeated, ("\n", "\0", "x"))


def _is_slow(work: Callable[[int], object], length: Callable[[int], int]) -> bool:
    """Return whether the work takes longer than a linear one would for some size, three times in a row."""
    for n in SIZES:
        bound, seconds = LEAST + EACH * length(n), 0.0
        if all((seconds := _seconds(work, n)) > bound for _ in range(3)):
            return True
        if n >= 256 and seconds < SHORT:
            return False
    return False


def _seconds(work: Callable[[int], object], n: int) -> float:
    start = time.thread_time()
    with suppress(HeadgateError):
        work(n)
    return time.thread_time() - start


def _weaknesses(use: _Use) -> list[str]:
    """Give the first attack, for each method, that the pattern takes more than linear time for."""
    pattern, text = use.pattern, use.pattern.pattern
    is_bytes = isinstance(text, bytes)
    attacks = list(_attacks(text.decode("latin-1") if is_bytes else text))

    def is_slow(method: str, beginning: str, repeated: str, end: str) -> bool:
        def match(n: int) -> object:
            given: Any = beginning + repeated * n + end
            given = given.encode("latin-1", "replace") if is_bytes else given
            found = getattr(pattern, method)(*([given[:0]] if method == "sub" else []), given)
            return list(found) if method == "finditer" else found

        return _is_slow(match, lambda n: n * len(repeated))

    methods = sorted(use.methods or {"match", "fullmatch"})
    slow = ((method, attack) for method in methods for attack in attacks if is_slow(method, *attack))
    return [f"{method} {attack}" for method, attack in islice(slow, 1)]


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
        (read_request, lambda n: _REQUEST + b"Te: x" + b" " * n + b"x\r\n\r\n"),
        (read_request, lambda n: _REQUEST + b"Host: a\r\n" * n + b"\r\n"),
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
