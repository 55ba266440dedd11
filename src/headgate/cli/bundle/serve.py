"""`headgate bundle serve`: a bundle, or the site inside it, over HTTP."""

from typing import TYPE_CHECKING

import click

from headgate.cli.bundle.output import bundle_errors
from headgate.cli.bundle.source_options import PROFILE
from headgate.cli.output import report_read_errors
from headgate.cli.params import ADDRESS

if TYPE_CHECKING:
    from headgate.bundle.model import Profile


@click.command(short_help="Serve a bundle, or the site inside it, over HTTP.")
@click.argument("file", metavar="FILE")
@click.option(
    "--listen",
    type=ADDRESS,
    metavar="HOST:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    help="Address that clients connect to; port 0 takes a free port.",
)
@click.option("--unpack", is_flag=True, help="Serve the site inside the bundle at /, with its variants negotiated.")
@PROFILE
def serve(*, file: str, listen: str, unpack: bool, profile: "Profile") -> None:
    """Serve a bundle over HTTP: at / and at its name, with ETag and Range; or, with --unpack, the site inside it.

    A line on stderr has the URL once it is ready. A file that is replaced is reloaded within a second; if the
    new one is not a valid bundle, the old one is served on. SIGTERM stops it.

    \b
    headgate bundle serve site.wbn
    headgate bundle serve site.wbn --unpack --listen 127.0.0.1:8000
    """
    from headgate.runtime.bundle_server import run_bundle_server

    with bundle_errors(file), report_read_errors(file):
        code = run_bundle_server(file, listen=listen, unpack=unpack, profile=profile)
    click.get_current_context().exit(code)
