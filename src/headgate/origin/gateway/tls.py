"""The TLS keys of a listener: several certificates by server name, the authorities of clients, and their reload."""

import ssl
from collections.abc import Sequence
from pathlib import Path

from headgate.config.tree import TlsSection
from headgate.errors import ConfigurationError, reason_of


class TlsKeys:
    """The certificates of a listener with their keys, PEM files; the first one is for all names that no other has.

    With `client_ca`, a PEM file, clients need a certificate of one of these authorities. Raises `ConfigurationError`
    for files that cannot be used.
    """

    def __init__(self, certificates: Sequence[TlsSection], client_ca: str = "") -> None:
        self._certificates = certificates
        self._client_ca = client_ca
        self._seen, self.context = self._stamps(certificates), self._load(certificates)
        """The context for the next handshake."""

    def reload(self, certificates: Sequence[TlsSection] | None = None) -> None:
        """Read all files again, or those of other certificates, for further handshakes.

        Raises `ConfigurationError` for invalid files, and leaves the old keys in force.

        Earlier sessions are not resumed: their clients may have lost their authority.
        """
        certificates = self._certificates if certificates is None else certificates
        self._seen, self.context = self._stamps(certificates), self._load(certificates)
        self._certificates = certificates

    def reload_changed(self) -> bool:
        """Read all files again if one has changed since they were read; returns whether one has."""
        stamps = self._stamps(self._certificates)
        if stamps == self._seen:
            return False
        self._seen = stamps  # invalid files are tried once
        self.reload()
        return True

    def _stamps(self, certificates: Sequence[TlsSection]) -> list[tuple[int, int, int] | None]:
        """Return what changes with the content of each file; None for a missing one."""
        stamps: list[tuple[int, int, int] | None] = []
        for path in [self._client_ca, *(path for one in certificates for path in (one.cert, one.key))]:
            try:
                found = Path(path).stat()
            except (OSError, ValueError):
                stamps.append(None)
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return stamps

    def _load(self, certificates: Sequence[TlsSection]) -> ssl.SSLContext:
        contexts = [self._load_one(one) for one in certificates]
        names = {
            name.lower(): context for one, context in zip(certificates, contexts, strict=True) for name in one.names
        }

        def select(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
            name = (name or "").lower()
            context = names.get(name) or names.get(f"*.{name.partition('.')[2]}")
            if context is not None:
                connection.context = context

        contexts[0].sni_callback = select if names else None
        return contexts[0]

    def _load_one(self, section: TlsSection) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # With a password, OpenSSL does not ask for that of an encrypted key at the terminal.
            context.load_cert_chain(section.cert, section.key, password="")
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"certificate {section.cert!r} and key {section.key!r} cannot be used ({reason_of(error)}); "
                "give PEM files that match, with a key that is not encrypted"
            ) from None
        if self._client_ca:
            try:
                context.load_verify_locations(self._client_ca)
            except (OSError, ValueError) as error:
                raise ConfigurationError(
                    f"client_ca {self._client_ca!r} cannot be used ({reason_of(error)}); give a PEM file with the "
                    "certificates of authorities"
                ) from None
            # The context of each name: OpenSSL verifies with the one that was selected last.
            context.verify_mode = ssl.CERT_REQUIRED
        return context
