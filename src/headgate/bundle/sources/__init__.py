"""Where a bundle's exchanges come from: a directory, a HAR, a WARC; and their compression on the way.

A source yields exchanges with payloads by reference, one for each URL, and only such as a bundle should hold: it says
in a sentence what it leaves out. It opens the files that it is given and a temporary one, and nothing else.
"""

from headgate.bundle.sources.compress import compress
from headgate.bundle.sources.directory import directory, find_manifest
from headgate.bundle.sources.har import har
from headgate.bundle.sources.warc import warc

__all__ = ["compress", "directory", "find_manifest", "har", "warc"]
