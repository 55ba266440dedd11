"""No regular expression takes more than a linear number of steps, whatever text it is given.

Every pattern in the package is attacked with texts derived from itself: something that leads to one of its repetitions,
that repetition's own characters n and 2n times, and something that may make the match fail. Then functions that read
text from peers are attacked as wholes, loops included.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from re import _constants as op  # type: ignore[attr-defined] # the parse tree has no public interface
from re import _parser as parser  # type: ignore[attr-defined] # same
from types import BuiltinMethodType, FrameType, ModuleType
from typing import Any, NamedTuple

import pytest

import headgate
from headgate.bundle.variants import parse_variants
from headgate.errors import HeadgateError
from headgate.http.fields import split_list
from headgate.http.h1 import ChunkedBody, RequestLimits, parse_request_head, parse_response_head
from headgate.http.media_type import extract_essence, parse_weights
from headgate.limit import Rule
from headgate.origin.request_info import forwarded_hops, x_forwarded_for_hops
from headgate.origin.routes import plain_path
from tests.regex_steps import METHODS, CountingPattern, TooManySteps, below, characters

_N = 8
_MOST_GROWTH = 1.3
"""Steps that n more repetitions cost after 2n, for each that they cost after n: 1 if linear, 5/3 if quadratic."""
_BOUND = 50_000

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


def _steps(counting: CountingPattern, method: str, text: bytes) -> int:
    counting.steps = 0
    given = text if isinstance(counting.pattern.pattern, bytes) else text.decode("latin-1")
    getattr(counting, method)(*([given[:0]] if method == "sub" else []), given)
    return counting.steps


def _grows(steps: Callable[[int], int]) -> bool:
    """Say whether steps grow faster than n."""
    try:
        once, twice, thrice = steps(_N), steps(2 * _N), steps(3 * _N)
    except TooManySteps:
        return True
    return thrice - twice > _MOST_GROWTH * max(twice - once, _N)


def _weaknesses(use: _Use) -> list[str]:
    """Give the attacks that the pattern takes more than linearly many steps for."""
    pattern, found = use.pattern, []
    counting = CountingPattern(pattern, bound=_BOUND)
    tree = parser.parse(pattern.pattern, pattern.flags)
    ends = dict.fromkeys([*_classes(tree, pattern.flags)[:4], b"\n", b"x", b""])
    for method in sorted(use.methods or {"match", "fullmatch"}):
        for beginning, repeated in _attacks(tree, pattern.flags):

            def steps(n: int, end: bytes = b"") -> int:
                return _steps(counting, method, beginning + repeated * n + end)  # noqa: B023 - called in this iteration

            if steps(1) == steps(2) == steps(3):
                continue  # the matcher never gets beyond the first repetition
            if weak := [end for end in ends if _grows(partial(steps, end=end))]:
                found.append(f"{method} {beginning!r} + {repeated!r} * n + one of {weak}")
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


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Give a function that calls another one, and returns its steps: lines executed, and steps of expressions."""
    counting: list[CountingPattern] = []
    for module in _modules():
        for name, value in list(vars(module).items()):
            for pattern, method in _held(value) if not isinstance(value, (dict, list, tuple)) else ():
                counting.append(CountingPattern(pattern))
                monkeypatch.setattr(module, name, getattr(counting[-1], method) if method else counting[-1])

    def steps(call: Callable[[], object]) -> int:
        lines = 0

        def trace(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal lines
            if not frame.f_globals["__name__"].startswith("headgate."):
                return None
            lines += event == "line"
            return trace

        before = sum(one.steps for one in counting)
        earlier = sys.gettrace()
        sys.settrace(trace)
        try:
            call()
        except HeadgateError:
            pass
        finally:
            sys.settrace(earlier)
        return lines + sum(one.steps for one in counting) - before

    return steps


_REQUEST = b"GET / HTTP/1.1\r\n"
_RESPONSE = b"HTTP/1.1 200 "
_CHUNKS = b"1;" + b" " * 200 + b"\r\nx\r\n"


def read_request(head: bytes) -> object:
    return parse_request_head(head, RequestLimits())


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
        (parse_weights, lambda n: b",;q=" * n),
        (lambda text: split_list([text]), lambda n: '"\\,' * n),
        (lambda text: extract_essence([text]), lambda n: "a/b;" + " " * n + '"' * n + ",a/b" * n),
        (parse_variants, lambda n: 'a;"' + "\\" * n + " " * n),
        (Rule.parse, lambda n: "1/" + " " * n + "!"),
    ],
)
def test_functions_that_read_what_peers_send_are_linear(
    function: Callable[[Any], object], text: Callable[[int], Any], count: Callable[[Callable[[], object]], int]
) -> None:
    assert not _grows(lambda n: count(lambda: function(text(8 * n))))
