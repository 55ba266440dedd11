"""Configuration: one TOML file to one frozen tree, and back.

Only this package reads TOML. The tree holds plain values as the operator wrote them, each checked; `headgate.runtime`
builds listeners, gatekeepers and routes from them.
"""

from headgate.config.file import parse, read, schema, show
from headgate.config.section import Address
from headgate.config.tree import BundleSection, Bus, Configuration, DomainSection, Gate, domain_changes
from headgate.config.validation import check, log_warnings

__all__ = [
    "Address",
    "BundleSection",
    "Bus",
    "Configuration",
    "DomainSection",
    "Gate",
    "check",
    "domain_changes",
    "log_warnings",
    "parse",
    "read",
    "schema",
    "show",
]
