"""Composing bundles: URLs, index, sections and layout. Pure: returns bytes."""

__all__: list[str] = []
