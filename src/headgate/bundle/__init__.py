"""Bundled HTTP exchanges (bundled-exchanges-01): read, write, check and sign web bundles.

`open_bundle` reads a bundle in a file or in memory, `StreamReader` one that is still arriving, `create_bundle` and
`BundleWriter` write one, `convert` makes another from it. The names here are imported when first used.

- `headgate.bundle.sources`: exchanges from a directory or a HAR
- `headgate.bundle.check`: what is wrong or unwise in a bundle
- `headgate.bundle.signing`: sign and verify

Below these, `model` has the value types, `variants` chooses among several responses for a URL, and `format` turns bytes
into values and back by the document's steps. `reader` and `stream` read whole bundles, `layout` makes
the parts of new ones. `files` opens files; the others are pure.
"""

import importlib
from typing import TYPE_CHECKING, Any

from headgate.errors import BundleError, FormatError, NotInBundle, ResponseError, VersionError

if TYPE_CHECKING:
    from headgate.bundle.api import create_bundle, open_bundle, parse_metadata
    from headgate.bundle.conversion import convert
    from headgate.bundle.files.writer import BundleWriter
    from headgate.bundle.model import (
        Exchange,
        Headers,
        Location,
        Metadata,
        Response,
        ResponseHead,
        Section,
        StoredExchange,
        VariantSet,
    )
    from headgate.bundle.reader import Bundle
    from headgate.bundle.stream import (
        EndEvent,
        ErrorEvent,
        HeadEvent,
        MetadataEvent,
        PayloadEvent,
        StreamEvent,
        StreamReader,
        aread_stream,
        read_stream,
    )

__all__ = [
    "Bundle",
    "BundleError",
    "BundleWriter",
    "EndEvent",
    "ErrorEvent",
    "Exchange",
    "FormatError",
    "HeadEvent",
    "Headers",
    "Location",
    "Metadata",
    "MetadataEvent",
    "NotInBundle",
    "PayloadEvent",
    "Response",
    "ResponseError",
    "ResponseHead",
    "Section",
    "StoredExchange",
    "StreamEvent",
    "StreamReader",
    "VariantSet",
    "VersionError",
    "aread_stream",
    "convert",
    "create_bundle",
    "open_bundle",
    "parse_metadata",
    "read_stream",
]

_NAMES = {
    "api": "create_bundle open_bundle parse_metadata",
    "conversion": "convert",
    "files.writer": "BundleWriter",
    "model": "Exchange Headers Location Metadata Response ResponseHead Section StoredExchange VariantSet",
    "reader": "Bundle",
    "stream": "EndEvent ErrorEvent HeadEvent MetadataEvent PayloadEvent StreamEvent StreamReader aread_stream "
    "read_stream",
}
_MODULES = {name: f"headgate.bundle.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
