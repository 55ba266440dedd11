"""Sockets, TLS, name lookup and connecting: what the proxy needs of the operating system."""
