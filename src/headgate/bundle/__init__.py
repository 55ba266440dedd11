"""Bundled HTTP exchanges (bundled-exchanges-01): a pure core.

One parser, a generator that is fed bytes, reads every form of the format from whatever holds the bytes.
"""

from headgate.errors import BundleError, FormatError, VersionError

__all__ = ["BundleError", "FormatError", "VersionError"]
