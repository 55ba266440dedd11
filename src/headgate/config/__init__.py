"""Configuration: one TOML file to one frozen tree, and back.

Nothing outside this room reads TOML. The tree holds plain values as the operator wrote them, each checked; what they
become (listeners, gatekeepers, routes) is composed in `headgate.cli`.
"""

from headgate.config.address import Address
from headgate.config.reading import parse, read
from headgate.config.schema import schema
from headgate.config.tree import BundleSection, Bus, Configuration, DomainSection, Gate
from headgate.config.writing import show

__all__ = [
    "Address",
    "BundleSection",
    "Bus",
    "Configuration",
    "DomainSection",
    "Gate",
    "parse",
    "read",
    "schema",
    "show",
]
