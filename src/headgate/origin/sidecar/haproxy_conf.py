"""Writes a configuration of HAProxy, which rejects requests by a stick table that a sidecar fills.

The file is made from the template `haproxy.cfg`. Texts of the site are written in single quotes, in which HAProxy
replaces nothing; what it could still read as something else, in a path or in the name of a header, is refused.
"""

import math
import re
from pathlib import Path
from string import Template
from typing import Final

from headgate.config.section import check_socket_path
from headgate.errors import fail_if, naming
from headgate.origin.identify import MAX_IDENTIFIER_SIZE
from headgate.origin.pages import PROBLEM
from headgate.origin.response import Rejections
from headgate.origin.sidecar.haproxy import ACCOUNTING_SUFFIX, check_table_name
from headgate.origin.sidecar.site import Site, rejection_template

_TEMPLATE: Final = Path(__file__).with_name("haproxy.cfg")
_LUA: Final = Path(__file__).with_name("haproxy.lua")
_PATH: Final = re.compile(r"[A-Za-z0-9._/+=:@~-]+")
_HEADER: Final = re.compile(r"[a-z0-9_.-]+")
_ADDRESS_SIZE: Final = 64
"""Bytes of the longest key of an address: an IPv6 network, whose colons and slash take three each."""
_KEY_SIZE: Final = 3 * MAX_IDENTIFIER_SIZE
_MARK: Final = b"\1"
_SECONDS: Final = b"%[var(txn.headgate_seconds)]"


def configuration(site: Site) -> str:
    """Return the text of a file for ``haproxy -f FILE``.

    Raises `ConfigurationError`, which names the flag, for a text that HAProxy's syntax cannot express.
    """
    with naming("--table"):
        check_table_name(site.table)
    with naming("--socket"):
        check_socket_path(site.socket + ACCOUNTING_SUFFIX)
        fail_if(
            not _PATH.fullmatch(site.socket),
            f"invalid path {site.socket!r}; HAProxy needs one of letters, digits and the characters ._/+=:@~-",
        )
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        command=site.command("--haproxy", site.socket, "--table", site.table),
        socket=site.socket,
        accounting=f"unix@{site.socket}{ACCOUNTING_SUFFIX}",
        lua=quoted(str(_LUA)),
        listen=site.listen,
        origin=site.origin_address,
        identify="\n".join(f"    http-request {rule}" for rule in _identify(site)),
        table=site.table,
        key_size=_ADDRESS_SIZE if site.header is None else _KEY_SIZE,
        expire=math.ceil(site.max_hold),
        problem=_return(site, PROBLEM),
        text=_return(site, None),
    )


def quoted(text: str) -> str:
    """Write a text as one word of a configuration; a line feed is written as an escape sequence."""
    return "'" + text.replace("'", "'\\''").replace("\n", "'\"\\n\"'") + "'"


def _identify(site: Site) -> list[str]:
    """Return the rules that set `txn.headgate_id` to what `headgate.origin.identify` returns."""
    prefix = site.ipv6_prefix
    rules = [f"set-var(txn.headgate_id) src,ipmask(32,{prefix})"]
    if prefix < 128:
        rules.append(
            f'set-var-fmt(txn.headgate_id) "%[src,ipmask(32,{prefix})]/{prefix}" if {{ var(txn.headgate_id) -m sub : }}'
        )
    name = site.header
    if name is None:
        return rules
    fail_if(
        not _HEADER.fullmatch(name),
        f"--identify: HAProxy cannot read a header named {name!r}; expected letters, digits, '-', '_' and '.'",
    )
    # A variable, because each look-up of a header scans all of them.
    field = "var(txn.headgate_field)"
    rules.append(f"set-var(txn.headgate_field) req.fhdr({name}) if {{ req.fhdr_cnt({name}) eq 1 }}")
    if name == "authorization":
        # Its scheme is case-insensitive.
        scheme, rest = f"%[{field},regsub('[ \t].*',''),lower]", f"%[{field},regsub('^[^ \t]+[ \t]+','')]"
        rules.append(f'set-var-fmt(txn.headgate_field) "{scheme} {rest}" if {{ {field} -m reg "[ \t]" }}')
    found = "var(txn.headgate_id)"
    return [
        *rules,
        f'set-var-fmt(txn.headgate_id) "=%[{field}]" if {{ {field} -m len gt 0 }}',
        f'set-var-fmt(txn.headgate_id) "sha256:%[{found},sha2(256),hex,lower]" if {{ {found} -m len gt 255 }}',
    ]


def _return(site: Site, accept: bytes | None) -> str:
    """Write a rejection as the arguments of `http-request return`."""
    rejections = site.rejections or Rejections(status=site.rejection_status)
    rejection = rejection_template(rejections, site.domain, accept, mark=_MARK)
    fields = dict(rejection.fields)
    media_type = fields.pop(b"content-type").decode()
    words = ["status", str(rejection.status), "content-type", quoted(media_type), "lf-string", _format(rejection.body)]
    for name, value in fields.items():
        words += ["hdr", name.decode(), _format(value)]
    return " ".join(words)


def _format(text: bytes) -> str:
    """Write a text as a log-format string with the seconds in place of the mark."""
    return quoted(text.replace(b"%", b"%%").replace(_MARK, _SECONDS).decode())
