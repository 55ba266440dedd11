"""The format: bytes to values and values to bytes, by the document's steps. Pure: opens nothing."""
