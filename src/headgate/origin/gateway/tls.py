"""The TLS keys of a listener: several certificates by server name, the authorities of clients, and their reload."""

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from headgate.config.tree import TlsSection
from headgate.errors import explaining

_Stamp = tuple[object, ...]
"""The files of a certificate, and what changes with their content."""


class TlsKeys:
    """The certificates of a listener with their keys, PEM files; the first one is for all names that no other has.

    With `client_ca`, a PEM file, clients need a certificate of one of these authorities. Raises `ConfigurationError`
    for files that cannot be used.
    """

    def __init__(self, certificates: Sequence[TlsSection], client_ca: str = "") -> None:
        self._certificates = certificates
        self._client_ca = client_ca
        self._loaded: dict[_Stamp, ssl.SSLContext] = {}
        self._seen: list[_Stamp] = []
        self.context: ssl.SSLContext
        """The context for the next handshake."""
        self.reload(certificates)

    def reload(self, certificates: Sequence[TlsSection]) -> None:
        """Use these certificates for further handshakes, and read files that have changed. May run in a thread.

        Raises `ConfigurationError` for invalid files, and leaves the old keys in force.
        """
        self.read(certificates)()

    def read(self, certificates: Sequence[TlsSection]) -> Callable[[], None]:
        """Read files that have changed; return what puts the certificates in force. Raises as `reload` does."""
        # Reading a certificate takes milliseconds, and there may be thousands. A context that is kept resumes its
        # sessions; with other authorities it is a new one, so that a client has to show its certificate again.
        stamps = [self._stamp(one) for one in certificates]
        contexts = [self._loaded.get(stamp) or self._load(one) for one, stamp in zip(certificates, stamps, strict=True)]
        names = {
            name.lower(): context for one, context in zip(certificates, contexts, strict=True) for name in one.names
        }

        def select(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
            name = (name or "").lower()
            context = names.get(name) or names.get(f"*.{name.partition('.')[2]}")
            if context is not None:
                connection.context = context

        def put_in_force() -> None:
            contexts[0].sni_callback = select if names else None
            self._loaded = dict(zip(stamps, contexts, strict=True))
            self._certificates, self._seen, self.context = certificates, stamps, contexts[0]

        return put_in_force

    def reload_changed(self) -> bool:
        """Read files that have changed since they were read; returns whether there are any. May run in a thread."""
        stamps = [self._stamp(one) for one in self._certificates]
        if stamps == self._seen:
            return False
        self._seen = stamps  # invalid files are tried once
        self.reload(self._certificates)
        return True

    def _stamp(self, section: TlsSection) -> _Stamp:
        stamp: list[object] = []
        for path in filter(None, (section.cert, section.key, self._client_ca)):  # "" would be the directory
            stamp.append(path)
            try:
                found = Path(path).stat()
            except (OSError, ValueError):
                continue
            stamp.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return tuple(stamp)

    def _load(self, section: TlsSection) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        what = f"certificate {section.cert!r} and key {section.key!r} cannot be used"
        with explaining(what, "give PEM files that match, with a key that is not encrypted"):
            # With a password, OpenSSL does not ask for that of an encrypted key at the terminal.
            context.load_cert_chain(section.cert, section.key, password="")
        if self._client_ca:
            advice = "give a PEM file with the certificates of authorities"
            with explaining(f"client_ca {self._client_ca!r} cannot be used", advice):
                context.load_verify_locations(self._client_ca)
            # The context of each name: OpenSSL verifies with the one that was selected last.
            context.verify_mode = ssl.CERT_REQUIRED
        return context
