"""Bundled HTTP exchanges (bundled-exchanges-01): a pure core.

One parser, a generator that is fed bytes, reads every form of the format from whatever holds the bytes: `open_bundle`
for files and memory, `headgate.bundle.stream` for bundles that are still arriving. `BundleWriter` makes them.
"""

from headgate.bundle.reader import Bundle, Response, open_bundle, parse_metadata
from headgate.bundle.writer import BundleWriter
from headgate.errors import BundleError, FormatError, VersionError

__all__ = [
    "Bundle",
    "BundleError",
    "BundleWriter",
    "FormatError",
    "Response",
    "VersionError",
    "open_bundle",
    "parse_metadata",
]
