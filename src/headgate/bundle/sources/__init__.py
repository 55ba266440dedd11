"""Exchanges from a directory, a HAR or a WARC, and their compression.

A source yields exchanges with payloads by reference, one for each URL, and passes a message for each that it leaves
out. It opens the files that it is given, and a temporary file.
"""

from headgate.bundle.sources.codings import compress
from headgate.bundle.sources.directory import directory, find_manifest
from headgate.bundle.sources.har import har
from headgate.bundle.sources.warc import warc

__all__ = ["compress", "directory", "find_manifest", "har", "warc"]
