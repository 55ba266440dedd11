"""Keys for the TLS listener, replaceable while it runs."""

import ssl

from headgate.errors import ConfigurationError


class TlsKeys:
    """A certificate chain and its key, two PEM files; raises `ConfigurationError` when they cannot be used."""

    def __init__(self, cert: str, key: str) -> None:
        self._cert = cert
        self._key = key
        self._current = self._load()
        self.context = self._current
        """What to give to `Gateway.start`; it stays the same over reloads."""
        # Keys loaded into a context in use would leave the old ones there, for clients that prefer their algorithm.
        self.context.sni_callback = self._switch

    def reload(self) -> None:
        """Read both files again, for the handshakes from now on; what is wrong leaves the old keys in force."""
        self._current = self._load()

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"certificate {self._cert!r} and key {self._key!r} cannot be used ({error}); give PEM files that match"
            ) from None
        return context

    def _switch(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current
