"""The base of every table of the file, and the value types that several tables use, addresses among them.

A value type carries three things beside its Python type: the limits that msgspec checks (`Meta`), the word for it in
the help of a command (`Format.metavar`), and the function that checks its text (`Format.parse`). This module opens no
socket: whether an address is available is known only when it is bound.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from headgate.errors import ConfigurationError, fail_if
from headgate.limit import Rule

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\s:\[\]/@?#]*):(?P<port>[0-9]{1,5})")
_MODE = re.compile(r"(?:0o)?0*([0-7]{3})")
_RULE = r"^\s*[0-9]+\s*(/|[pP][eE][rR])\s*[0-9]*\s*[A-Za-z]+(\s*[bB][uU][rR][sS][tT]\s*[0-9]+)?\s*$"


class ConfigSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; an unknown key in it is an error."""


def with_value(table: Any, names: Sequence[str], value: Any) -> Any:
    """Return a table with another value of the key that the path `names` leads to; of a list of tables, each."""
    if isinstance(table, tuple):
        return tuple(with_value(member, names, value) for member in table)
    name, *inner = names
    return replace(table, **{name: with_value(getattr(table, name), inner, value) if inner else value})


class Address(NamedTuple):
    """A host and a port; port 0 asks the system for a free port."""

    host: str
    """A name or an address, without brackets; never empty."""
    port: int
    """0 to 65535."""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse ``127.0.0.1:8080``, ``[::1]:8080`` or ``localhost:0``; an empty host means every IPv4 address.

        Raises `ConfigurationError` with the text and an example of a valid address.
        """
        match = _ADDRESS.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65_535 or not is_host(match["host"]):
            raise ConfigurationError(f"invalid address {text!r}; expected HOST:PORT, such as '127.0.0.1:8080'")
        host = match["host"].removeprefix("[").removesuffix("]")
        return cls(host or "0.0.0.0", int(match["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_host(text: str) -> bool:
    """Return whether `text` can be a host name: resolvers reject names with an empty or too long label."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host is one of this machine only, by its address or as ``localhost``; ``*`` is not."""
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


MAX_SOCKET_PATH: Final = 107 if sys.platform == "linux" else 103
"""Maximum bytes in the path of a unix socket: the size of `sun_path` without its final NUL."""


def check_socket_path(path: str) -> None:
    """Raise `ConfigurationError` for a path that no unix socket can have."""
    size = len(path.encode("utf-8", "surrogateescape"))
    fail_if(
        not path or "\0" in path, f"invalid path {path!r} of a unix socket; expected one such as '/run/headgate.sock'"
    )
    fail_if(
        size > MAX_SOCKET_PATH,
        f"path too long: {path!r} has {size} bytes; the path of a unix socket has at most {MAX_SOCKET_PATH}",
    )


UNIX: Final = "unix:"
"""What precedes the path of a unix socket in an address to listen at."""


def check_listener(text: str) -> None:
    """Raise `ConfigurationError` for what is neither an `Address` nor ``unix:`` and the path of a socket."""
    if text.startswith(UNIX):
        check_socket_path(text.removeprefix(UNIX))
    else:
        Address.parse(text)


def parse_mode(text: str) -> int:
    """Parse permissions in octal, ``0666`` or ``0o660``; raises `ConfigurationError` for another text."""
    match = _MODE.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"invalid mode {text!r}; expected permissions in octal, such as '0666' or '0660'")
    return int(match[1], 8)


@dataclass(frozen=True)
class Format:
    """How the text of a value is written, and how it is checked."""

    metavar: str
    """The placeholder in the help of a command, such as FILE."""
    parse: Callable[[str], object] | None = None
    """Raises `ConfigurationError` for invalid text."""


def optional(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return a parser that takes an empty text, too, as none."""
    return lambda text: parse(text) if text else None


parse_optional_address: Final = optional(Address.parse)


Loop = Literal["auto", "uvloop", "asyncio"]
"""Names of event loops."""
Seconds = Annotated[float, Meta(ge=0.001, le=86_400), Format("SECONDS")]
"""A duration of at most a day, and more than zero."""
SecondsOrZero = Annotated[float, Meta(ge=0, le=86_400), Format("SECONDS")]
"""A duration of at most a day; zero has a meaning of its own."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
"""A number of things; the maximum is the largest integer that every JSON reader represents exactly."""
File = Annotated[str, Format("FILE")]
"""The path of a file."""
Listen = Annotated[
    str, Meta(examples=["127.0.0.1:8080", "[::1]:8080", "0.0.0.0:0"]), Format("HOST:PORT", Address.parse)
]
"""An address to listen at."""
ListenOrNone = Annotated[str, Meta(examples=["127.0.0.1:8090"]), Format("HOST:PORT", parse_optional_address)]
"""An address to listen at, or empty for none."""
Listener = Annotated[
    str, Meta(examples=["127.0.0.1:8080", "*:443", "unix:/run/headgate.sock"]), Format("ADDRESS", check_listener)
]
"""An address to listen at, or a unix socket."""
SocketOrNone = Annotated[str, Format("SOCKET", optional(check_socket_path))]
"""The path of a unix socket, or empty for none."""
Masters = Annotated[str | tuple[str, ...], Format("MASTER")]
"""The address of a master, or those of several."""
ServerKeys = Annotated[str | tuple[str, ...], Format("KEY|FILE")]
"""The public key of a master, as itself or in a file, or those of several."""
RuleText = Annotated[
    str,
    Meta(extra_json_schema={"pattern": _RULE}, examples=["10/s burst 20", "600 per 10min", "1000/h burst 50"]),
    Format("RULE", Rule.parse),
]
"""A rule."""
