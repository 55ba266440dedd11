"""Parameter types and options that several commands share."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from headgate.errors import ConfigurationError, fail_if

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity

T = TypeVar("T")
N = TypeVar("N", int, float)

_BRAND = "headgate"
"""The brand name of this program, unless another is given."""


class Parsed(click.ParamType[T], Generic[T]):
    """The result of a function that parses the text of a parameter; its `ConfigurationError` is a wrong use."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Parse the text; a default, which may be a number, is parsed from its text too."""
        try:
            return self._parse(str(value))
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


def number(noun: str, minimum: float = 0.0, maximum: float = math.inf) -> Callable[[str], float]:
    """Return a parser of finite numbers from `minimum` to `maximum`, both included."""
    return _limited(float, noun, minimum, maximum)


def whole_number(minimum: int = 0, maximum: float = math.inf) -> Callable[[str], int]:
    """Return a parser of whole numbers from `minimum` to `maximum`, both included."""
    return _limited(int, "a whole number", minimum, maximum)


def _limited(convert: Callable[[str], N], noun: str, minimum: float, maximum: float) -> Callable[[str], N]:
    limits = f"of at least {minimum:g}" if maximum == math.inf else f"from {minimum:g} to {maximum:,.12g}"

    def parse(text: str) -> N:
        with suppress(ValueError):
            value = convert(text)
            if minimum <= value <= maximum and value < math.inf:
                return value
        raise ConfigurationError(f"must be {noun} {limits}, got {text!r}")

    return parse


def _parse_address(text: str) -> str:
    from headgate.config import Address

    return str(Address.parse(text))


def _parse_rule(text: str) -> str:
    from headgate.limit import Rule

    Rule.parse(text)
    return text


def _parse_field(text: str) -> tuple[str, str]:
    """Parse 'Name: value' to the name in lower case and the value."""
    from headgate.bundle.format.headers import is_field_name, is_field_value

    name, colon, content = text.partition(":")
    name, content = name.strip(" \t").lower(), content.strip(" \t")
    try:
        valid = bool(colon) and is_field_name(name.encode("ascii")) and is_field_value(content.encode("latin-1"))
    except UnicodeEncodeError:
        valid = False
    fail_if(not valid, f"invalid header field {text!r}; expected 'Name: value', such as 'Accept-Language: fr'")
    return name, content


def misuse_if(condition: object, message: str) -> None:
    """Raise `UsageError` with a message if a condition holds."""
    if condition:
        raise click.UsageError(message)


SECONDS = Parsed("seconds", number("a number of seconds"))
"""A number of seconds, 0 or more and finite."""

COUNT = Parsed("integer", whole_number())
"""A whole number, 0 or more."""

ADDRESS = Parsed("host:port", _parse_address)
"""HOST:PORT, as text that has been checked."""

RULE = Parsed("rule", _parse_rule)
"""A rule, as text that has been checked."""

_FIELD = Parsed("field", _parse_field)


def header_option(text: str) -> Callable[..., Any]:
    """Add `-H 'Name: value'`, as curl has it: repeatable, with `text` as its help."""
    return click.option("-H", "--header", "fields", type=_FIELD, metavar="'NAME: VALUE'", multiple=True, help=text)


class _Identity(click.ParamType["AgentIdentity"]):
    name = "identity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "AgentIdentity":
        """Parse one name, or several separated by commas."""
        from headgate.advice import AgentIdentity
        from headgate.advice.identity import EVERY_AGENT

        if isinstance(value, AgentIdentity):
            return value
        names = [name.strip() for name in value.split(",")]
        if names == [EVERY_AGENT]:
            names = [_BRAND]
        try:
            return AgentIdentity(names if len(names) > 1 else names[0])
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


def identity_option(*, default: str | None = "*", purpose: str = "") -> Callable[..., Any]:
    """Return the option --identity: the names of the agent, and their `purpose` if they are not for all requests."""
    default_text = "" if default is None and not purpose else " Default: *, every agent."
    return click.option(
        "--identity",
        type=_Identity(),
        metavar="NAME",
        default=default,
        help=f"{purpose}Agent names, the most specific first and * last, such as "
        f"'ExampleProxy,prefetch-proxy,*'.{default_text}",
    )


CA: Callable[..., Any] = click.option(
    "--ca", metavar="FILE", help="CA certificates, PEM, to trust instead of the system's."
)
"""CA certificates to trust."""


def tls_context(ca: str | None) -> Any:
    """Return the TLS context for --ca, None without it; raises `ConfigurationError` for an invalid file."""
    if ca is None:
        return None
    from headgate.fetch import fetcher

    return fetcher.tls_context("--ca", ca)
