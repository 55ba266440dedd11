"""CONNECT requests in HTTP/1.1."""

__all__: list[str] = []
