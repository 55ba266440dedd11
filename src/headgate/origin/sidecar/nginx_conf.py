"""Writes a whole configuration of nginx: one server with a listener and an origin. What limits it is given as text.

The file is made from the template `nginx.conf`. It runs in the foreground (``nginx -p FOLDER -c FILE``), as root and as
an ordinary user.
"""

import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from headgate.errors import ConfigurationError
from headgate.origin.sidecar.site import Site

_TEMPLATE: Final = Path(__file__).with_name("nginx.conf")
_USER: Final = """\
# Started by root, nginx runs its workers as another user, who cannot reach the socket in this folder.
user root;
"""


def nginx_configuration(site: Site, kind: str, parts: Mapping[str, str]) -> str:
    """Return the text of a file for nginx.

    `parts` has the lines at the places `warning`, `main`, `http` and `server` of the template. `kind` is the flag of
    the sidecar, without the hyphens. Raises `ConfigurationError` for a port 0.
    """
    if not site.listen.port:
        raise ConfigurationError("--listen: nginx needs a port, got 0; expected one such as 127.0.0.1:8080")
    domain, socket = shlex.quote(site.domain), shlex.quote(site.socket)
    command = f"headgate sidecar --master HOST:PORT --domain {domain} --{kind} {socket}"
    places = dict.fromkeys(("warning", "main", "http", "server"), "") | dict(parts)
    if not is_reachable(Path(site.socket)):
        places["main"] = _USER + places["main"]
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        places, command=command, listen=site.listen, origin=site.origin_address
    )


def is_reachable(path: Path) -> bool:
    """Return whether every user may pass through the folders of a path, as far as they exist."""
    for folder in path.absolute().parents:
        try:
            mode = folder.stat().st_mode
        except OSError:
            continue
        if not mode & stat.S_IXOTH:
            return False
    return True
