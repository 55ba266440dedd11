"""`headgate bundle serve`: a bundle, or the site inside it, over HTTP."""

from typing import TYPE_CHECKING

import click

from headgate.cli.bundle.opening import PROFILE
from headgate.cli.bundle.showing import refusals
from headgate.cli.params import ADDRESS
from headgate.cli.printing import unreadable

if TYPE_CHECKING:
    from headgate.bundle.model import Profile

__all__ = ["serve"]


@click.command(short_help="Serve a bundle, or the site inside it, over HTTP.")
@click.argument("file", metavar="FILE")
@click.option(
    "--listen",
    type=ADDRESS,
    metavar="HOST:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    help="Port 0: a free one.",
)
@click.option("--unpack", is_flag=True, help="Serve the site inside the bundle at /, its variants negotiated.")
@PROFILE
def serve(*, file: str, listen: str, unpack: bool, profile: "Profile") -> None:
    """Serve a bundle over HTTP: at / and at its name, with ETag and Range; or, with --unpack, the site inside it.

    A line on stderr says when it is ready, and at which URL. A file that is replaced is noticed within a second; one
    that is no bundle leaves what was served before in force. SIGTERM ends it.

    \b
    headgate bundle serve site.wbn
    headgate bundle serve site.wbn --unpack --listen 127.0.0.1:8000
    """
    from headgate.runtime.bundle_server import run_bundle_server

    with refusals(file), unreadable(file):
        code = run_bundle_server(file, listen=listen, unpack=unpack, profile=profile)
    click.get_current_context().exit(code)
