"""Refuse bundles whose responses overlap, before all of them are copied, written or hashed.

The document allows the index to place a response inside another (3.3.1), so a small file can hold any number of large
ones. A response that keys share counts once.
"""

from headgate.bundle.model import Location, VariantSet
from headgate.bundle.reading.reader import Bundle
from headgate.errors import HeadgateError


def reject_overlapping_responses(bundle: Bundle) -> None:
    """Raise `HeadgateError` for a bundle whose responses together are longer than itself.

    Only responses that are complete count.
    """
    size = bundle.size
    locations: set[Location] = set()
    for found in bundle.metadata.requests.values():
        locations.update(found.locations.in_order() if isinstance(found, VariantSet) else (found,))
    total = sum(one.length for one in locations if one.offset + one.length <= size)
    if total > size:
        raise HeadgateError(
            f"the responses overlap: {total} bytes in a bundle of {size}; refusing to copy all of them, use get for "
            "single ones"
        )
