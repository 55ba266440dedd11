"""Split a run of frames into messages.

This module opens no socket. Asking ZeroMQ after each frame whether the message continues costs more than reading the
frame. So the fast path of a master asks only twice for each message, and accepts a message by the values of its frames.
Other frames are read on to a known end of a message and split here: the run is one message or several, of which at
least one is malformed.
"""

from collections.abc import Container, Iterator, Sequence

from headgate.limit.wire import STATUSES
from headgate.link.batch import BATCH


def split_messages(run: Sequence[bytes], topics: Container[bytes], *, whole: int = 1) -> Iterator[Sequence[bytes]]:
    """Split a run of frames into messages; the first `whole` frames belong to one message.

    A message starts at the topic of a batch, and at a topic (known, or ending in NUL) that a status follows. So a
    message that is too short never takes a frame of the next message.
    """
    start = 0
    for at in range(whole, len(run) - 1):
        frame = run[at]
        if frame.startswith(BATCH) or (run[at + 1] in STATUSES and (frame in topics or frame.endswith(b"\0"))):
            yield run[start:at]
            start = at
    yield run[start:]
