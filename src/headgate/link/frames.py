"""Messages out of a run of frames.

This file knows nothing of sockets. Asking ZeroMQ after each frame whether its message goes on costs more than
reading it. So a master, on its fast path, asks twice a message and lets the frames' looks tell the rest; whatever
does not look like an accounting message is read on to a known end and comes here as a run: one message or several, of
which at least one is malformed.
"""

from collections.abc import Container, Iterator, Sequence

from headgate.limit.wire import STATUSES
from headgate.link.batch import BATCH

__all__ = ["messages_in"]


def messages_in(run: Sequence[bytes], topics: Container[bytes], *, whole: int = 1) -> Iterator[Sequence[bytes]]:
    """Cut a run of frames, of which the first `whole` are known to belong together, into messages.

    One begins at the topic of a batch, and where a topic, known or ending in NUL, is followed by a status. So a
    message that is too short costs only itself, and never a frame of the one behind it.
    """
    start = 0
    for at in range(whole, len(run) - 1):
        frame = run[at]
        if frame.startswith(BATCH) or (run[at + 1] in STATUSES and (frame in topics or frame.endswith(b"\0"))):
            yield run[start:at]
            start = at
    yield run[start:]
