"""The table `[log]`: the access log of a gate, and the program log of every server."""

from typing import Annotated, Literal

from msgspec import Meta

from headgate.config.section import ConfigSection, File, Format

Level = Literal["debug", "info", "warning", "error"]
"""Levels of the program log, the lowest first."""


class LogSection(ConfigSection, frozen=True):
    """The access log of the gate, and the program log on stderr of every server."""

    access: Annotated[str, Meta(examples=["/var/log/headgate/access.log", "-"]), Format("FILE")] = ""
    """Access log of the gate, one line for each request; - is standard output. It is opened again on SIGHUP, after it
    was renamed. If it is written too slowly, lines are dropped and counted. Empty disables it."""
    format: Literal["json", "combined"] = "json"
    """Format of the access log: json has all fields; combined is that of Apache and nginx."""
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Share of accepted requests that are logged, from 0 to 1. Rejected and failed requests are always logged."""
    identifiers: Literal["plain", "hashed", "off"] = "plain"
    """How the access log names clients: plain, by address, and by the digest of a header that identifies; hashed, by a
    keyed hash; off, not at all."""
    identifiers_key: File = ""
    """File with the key of `identifiers` = hashed, 16 to 64 bytes. Empty for a new key at each start: then the hashes
    of a client differ after a restart."""
    level: Level = "info"
    """Lowest level of the lines of the program log."""
    lines: Literal["text", "json"] = "text"
    """Form of the lines of the program log; json has time, level, instance and message. The line that begins with
    `ready` is the same in both."""
    instance: str = ""
    """Name of this instance in the program log. Empty for the name of the host, which only json shows."""
