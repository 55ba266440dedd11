"""Reading bundles: open ones with random access, and streams. Pure: reads from a `ByteSource` or fed bytes."""

__all__: list[str] = []
