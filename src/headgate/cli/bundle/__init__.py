"""`headgate bundle`: read, create, change, sign and serve bundles. A command's module is imported when it is used.

`get` from a bundle of hundreds of megabytes is fast and small, so a command imports only what it needs.
"""

import signal
import sys
import threading
from collections.abc import Mapping
from typing import ClassVar

import click

from headgate.cli.program import Program

__all__ = ["bundle"]

_COMMANDS = {
    "info": ("inspection:info", "Show version, URLs and sections of a bundle."),
    "list": ("inspection:list_responses", "List every response: URL, status, headers, location."),
    "get": ("get:get", "Get one response from a bundle."),
    "extract": ("extract:extract", "Extract every payload to a file, the rest to JSON."),
    "create": ("create:create", "Create a bundle from files, HAR or URLs."),
    "convert": ("create:convert", "Convert a bundle to another version of the format."),
    "check": ("inspection:check", "Check every part of a bundle: errors and warnings."),
    "sign": ("signing:sign", "Sign the responses, or the file as a whole."),
    "verify": ("signing:verify", "Verify the signatures of a bundle."),
    "serve": ("serve:serve", "Serve a bundle, or the site inside it, over HTTP."),
}


class _Bundle(Program):
    sentences: ClassVar[Mapping[str, str]] = {name: sentence for name, (_, sentence) in _COMMANDS.items()}

    def find(self, name: str) -> tuple[str, str]:
        """Return the module of a command, and its name there."""
        module, _, attribute = _COMMANDS[name][0].partition(":")
        return f"headgate.cli.bundle.{module}", attribute


@click.group(
    cls=_Bundle, epilog="Start with: headgate bundle create --dir site --base-url https://example.com/ -o site.wbn"
)
def bundle() -> None:
    """Read, create, sign and serve bundles: many HTTP exchanges in one file (.wbn, .swbn).

    Bundles are checked by every step of the document; --profile compat also accepts what the published tools write.
    Where a command takes FILE|URL|-, a bundle at an http or https URL is fetched whole.
    """
    if threading.current_thread() is threading.main_thread():
        # Temporary files are removed as after any error.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
