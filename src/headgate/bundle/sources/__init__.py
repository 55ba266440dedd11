"""Exchanges from a directory or a HAR.

A source yields exchanges with payloads by reference, one for each URL, and passes a message for each that it leaves
out. It opens the files that it is given, and a temporary file.
"""

from headgate.bundle.sources.directory import directory, find_manifest
from headgate.bundle.sources.har import har

__all__ = ["directory", "find_manifest", "har"]
