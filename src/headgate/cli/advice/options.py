"""Options and output that the commands about traffic advice share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.output import printable, report_read_errors
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity
    from headgate.advice.parser import AdviceResult


_MAX_SIZE = 16 << 20
_BRAND = "headgate"
"""The brand name of this program, unless another is given."""


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


def identity(*, default: str | None = "*", purpose: str = "") -> Callable[..., Any]:
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


def as_json(result: "AdviceResult") -> Any:
    """Return a traffic advice result as the commands print it."""
    from headgate.advice.parser import result_to_json

    return result_to_json(result)


def document_of(file: str) -> bytes:
    """Read a document from a file or standard input; it may be longer than an agent would fetch.

    Raises `ConfigurationError` for a file that cannot be read or is longer than 16 MiB.
    """
    with report_read_errors(file), click.open_file(file, "rb") as document:
        data: bytes = document.read(_MAX_SIZE + 1)
    if len(data) > _MAX_SIZE:
        raise ConfigurationError(f"{printable(file)}: longer than {_MAX_SIZE >> 20} MiB, the limit for traffic advice")
    return data


def trusted(ca: str | None) -> Any:
    """Return the TLS context for --ca, None without it; raises `ConfigurationError` for an invalid file."""
    if ca is None:
        return None
    import ssl

    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"--ca {ca}: {said}; name a PEM file of certificates") from None
