"""`headgate bundle`: read, make, change, sign and serve bundles. One module per command, imported when it is asked for.

`get` out of a bundle of hundreds of megabytes is quick and small: nothing here may cost what a command does not need.
"""

from collections.abc import Mapping
from typing import ClassVar

import click

from headgate.cli.program import Program

__all__ = ["bundle"]

_COMMANDS = {
    "info": ("info:info", "What a bundle says of itself: version, URLs, sections."),
    "list": ("listing:list_responses", "Every response: URL, status, headers, where it is."),
    "get": ("get:get", "One response, out of a bundle of any size."),
    "extract": ("extract:extract", "Every payload as a file, and the rest as JSON."),
    "create": ("create:create", "A bundle of a directory, a HAR, a list of URLs or a WARC."),
    "convert": ("convert:convert", "The same exchanges in another version of the format."),
    "rebase": ("convert:rebase", "The same exchanges at another origin."),
    "lint": ("lint:lint", "Check every part of a bundle: errors and warnings."),
    "sign": ("sign:sign", "Vouch for the responses, or for the file as a whole."),
    "integrity": ("integrity:integrity", "Add, remove or show the integrity block of a file."),
    "verify": ("verify:verify", "Whether the signatures of a bundle hold."),
    "serve": ("serve:serve", "Serve a bundle, or the site inside it, over HTTP."),
}


class _Bundle(Program):
    sentences: ClassVar[Mapping[str, str]] = {name: sentence for name, (_, sentence) in _COMMANDS.items()}

    def find(self, name: str) -> tuple[str, str]:
        """Give the module of a command that there is, and its name there."""
        module, _, attribute = _COMMANDS[name][0].partition(":")
        return f"headgate.cli.bundle.{module}", attribute


@click.group(
    cls=_Bundle, epilog="Start with: headgate bundle create --dir site --base-url https://example.com/ -o site.wbn"
)
def bundle() -> None:
    """Read, make, sign and serve bundles: many HTTP exchanges in one file (.wbn, .swbn).

    Bundles are read as the document says, step by step; --profile compat also accepts what the published tools write.
    """
