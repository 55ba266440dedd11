"""The prefetch proxy: tunnels for CONNECT, each decided on before anything is dialled."""

__all__: list[str] = []
