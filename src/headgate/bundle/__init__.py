"""Bundled HTTP exchanges (bundled-exchanges-01): read, write, check and sign web bundles.

`open_bundle` reads a bundle in a file or in memory, `BundleWriter` writes one. The names of this module are imported
when they are first used.

- `model`, `variants`, `negotiation`: the value types, and how a request selects one of several responses
- `format`, `reading`, `writing`: bytes to values and back, by the document's steps. All of these are pure: they open
  no file
- `files`: where bytes come from and go to: paths, memory, temporary files
- `sources`: exchanges from a directory, a HAR or a WARC
- `lint`, `convert`, `signing`: check a bundle, write it in another version, sign and verify it
"""

import importlib
from typing import TYPE_CHECKING, Any

from headgate.errors import BundleError, FormatError, VersionError

if TYPE_CHECKING:
    from headgate.bundle.api import open_bundle, parse_metadata
    from headgate.bundle.files.writer import BundleWriter
    from headgate.bundle.model import Response
    from headgate.bundle.reading.reader import Bundle

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

_MODULES = {
    "Bundle": "headgate.bundle.reading.reader",
    "BundleWriter": "headgate.bundle.files.writer",
    "Response": "headgate.bundle.model",
    "open_bundle": "headgate.bundle.api",
    "parse_metadata": "headgate.bundle.api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
