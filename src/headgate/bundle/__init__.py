"""Bundled HTTP exchanges (bundled-exchanges-01): a pure core.

One parser, a generator that is fed bytes, reads every form of the format from whatever holds the bytes: `open_bundle`
for files and memory, `headgate.bundle.stream` for bundles that are still arriving. `BundleWriter` makes them.

Where things are:

- read: `parser` has the steps; `cbor`, `section`, `sections`, `index`, `fields` and `reading` what it reads, `ending`
  and `integrity` what may stand around a bundle, `metadata` what comes of it
- feed the parser: `need` is what it asks; `reader` and `holder` answer from memory and files, `stream` as bytes arrive;
  `familiar` makes the next response quicker
- choose: `lookup` by URL, `variants` and `negotiation` by a request
- write: `writer`; `exchange`, `payload` and `spool` go in, `headers`, `addresses`, `placing` and `untrusted` check,
  `layout`, `outline`, `responses` and `output` come out; `convert` does both
- prove: `signing`; `mice` and `decoded` undo what signing did to a payload, `extent` refuses responses within responses
- `sources` give exchanges, `lint` finds what is wrong
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
