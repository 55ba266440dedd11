"""The stick table of HAProxy that has the holds: its keys, its values, and the commands of the runtime socket.

This module opens no socket. A key is an identifier in percent-encoding, as HAProxy's converter `url_enc` writes it:
only letters, digits and the characters ``-._~%``. So no identifier can end a command or an argument, whatever its bytes
are. A value has 32 bits: the end of the hold in hundredths of a second since 1970, without the bits above these, so
HAProxy calculates modulo 2^32. An entry that has not been written for as long as a hold can be expires by itself.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote_from_bytes

from headgate.errors import WireError, fail_if
from headgate.limit.messages import to_milliseconds

ACCOUNTING_SUFFIX: Final = ".accounting"
"""What follows the path of the runtime socket of HAProxy in the path of the socket for its reports."""
MAX_COMMAND_SIZE: Final = 8_000
"""Bytes sent to HAProxy at once; its buffer has 16 KiB unless the operator has made it smaller."""

_NAME: Final = re.compile(r"[A-Za-z0-9._:-]+")


def check_table_name(name: str) -> None:
    """Raise `ConfigurationError` for a text that is not the name of a table, or could be read as something else."""
    fail_if(
        not _NAME.fullmatch(name),
        f"invalid table {name!r}; expected the name of a backend or peers section with a stick-table, of letters, "
        "digits and the characters ._:-",
    )


def encode_key(identifier: bytes) -> str:
    """Return the key of an identifier."""
    return quote_from_bytes(identifier, safe="")


def encode_end(release: float) -> int:
    """Return the value for the end of a hold: rounded up, so that no hold ends early, and not 0, which means none."""
    return (-(-to_milliseconds(release) // 10) & 0xFFFFFFFF) or 1


def set_commands(table: str, holds: Iterable[tuple[bytes, float]]) -> Iterator[str]:
    """Yield groups of commands that write holds, identifiers and release times, into a table."""
    group = ""
    for identifier, release in holds:
        command = f"set table {table} key {encode_key(identifier)} data.gpt0 {encode_end(release)}"
        if group and len(group) + len(command) > MAX_COMMAND_SIZE:
            yield group + "\n"
            group = ""
        group += f";{command}" if group else command
    if group:
        yield group + "\n"


def check_done(answer: str) -> None:
    """Raise `WireError` unless an answer says that all commands have been executed: then it has only line feeds."""
    if answer.strip():
        raise WireError(f"HAProxy did not change the table: {answer.strip()[:200]!r}")
