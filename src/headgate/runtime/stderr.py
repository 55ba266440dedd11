"""Lines on stderr."""

import sys


def write_line(text: str) -> None:
    """Write one line to stderr at once; a closed stderr is ignored."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        return
