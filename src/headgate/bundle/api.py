"""The functions that most programs need: open a bundle, read its metadata alone, make one in memory."""

from collections.abc import Iterable
from io import BytesIO

from headgate.bundle.files.byte_source import Source, open_source
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.format.incremental import drive, reads_from
from headgate.bundle.format.metadata import metadata_parser
from headgate.bundle.model import Exchange, Metadata, Profile, Version
from headgate.bundle.reader import Bundle
from headgate.errors import ConfigurationError


def open_bundle(
    source: Source,
    *,
    profile: Profile = "strict",
    from_end: bool = False,
    base_url: str | None = None,
    max_section: int | None = None,
) -> Bundle:
    """Open the bundle in `source`: a path, its bytes, or a seekable binary file.

    With `from_end` the bundle is found by the length at its end (2.2.1), whatever it was appended to; otherwise it
    begins at the first byte, or after an integrity block there. `base_url` resolves the relative URLs of a b2 bundle.
    `max_section` limits the bytes of the index and of each other section, for a bundle from elsewhere. Raises
    `FormatError`, `VersionError`, `OSError` for a path that cannot be read, and `ConfigurationError` for another
    source, such as a URL. Reading a file that was written to since is an `OSError`: replace such files by renaming.
    Threads may share the bundle; other code must not move the position of a file object that was passed.
    """
    opened = open_source(source)
    try:
        return Bundle(opened, profile=profile, from_end=from_end, base_url=base_url, max_section=max_section)
    except BaseException:
        opened.close()
        raise


def parse_metadata(
    source: bytes | bytearray | memoryview, *, profile: Profile = "strict", base_url: str | None = None
) -> Metadata:
    """Load a bundle's metadata from its first bytes (3.3): those before the first response are enough.

    Raises `FormatError` and `VersionError`. `base_url` resolves the relative URLs of a b2 bundle.
    """
    if not isinstance(source, (bytes, bytearray, memoryview)):
        raise ConfigurationError(f"parse_metadata needs bytes, got {source!r:.80}; use open_bundle for files")
    return drive(metadata_parser(profile=profile, base_url=base_url), reads_from(source))


def create_bundle(
    exchanges: Iterable[Exchange],
    *,
    version: Version = "b2",
    primary_url: str | None = None,
    manifest_url: str | None = None,
) -> bytes:
    """Return the bundle of these exchanges; `BundleWriter` writes one to a file, and says what the arguments are.

    Raises `ConfigurationError` for exchanges that a bundle cannot hold.
    """
    target = BytesIO()
    if not isinstance(exchanges, Iterable):
        raise ConfigurationError(f"create_bundle needs a list of Exchange, got {exchanges!r:.200}")
    with BundleWriter(target, version=version, primary_url=primary_url, manifest_url=manifest_url) as writer:
        for exchange in exchanges:
            writer.add_exchange(exchange)
    return target.getvalue()
