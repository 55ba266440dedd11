"""`-H 'Name: value'`: a header field on the command line, as curl takes it."""

from collections.abc import Callable, Iterable
from typing import Any

import click

__all__ = ["fields", "folded"]


class _Field(click.ParamType[tuple[str, str]]):
    name = "field"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Read 'Name: value' to a name in lower case and a value."""
        from headgate.bundle.format.header_decoder import is_field_name, is_field_value

        name, colon, content = str(value).partition(":")
        name, content = name.strip(" \t").lower(), content.strip(" \t")
        try:
            good = bool(colon) and is_field_name(name.encode("ascii")) and is_field_value(content.encode("latin-1"))
        except UnicodeEncodeError:
            good = False
        if not good:
            self.fail(f"{value!r} is no header field; try 'Accept-Language: fr'", param, ctx)
        return name, content


def fields(text: str) -> Callable[..., Any]:
    """Give a command -H, repeatable, said in its help to be `text`."""
    return click.option("-H", "--header", "fields", type=_Field(), metavar="'NAME: VALUE'", multiple=True, help=text)


def folded(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give the fields by name, those of one name as the list they are (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, value in given:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
