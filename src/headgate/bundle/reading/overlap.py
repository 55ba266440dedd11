"""How long the responses of a bundle are together: no longer than the bundle, unless they lie inside one another.

Nothing in the document keeps the index from placing a response inside another (3.3.1), so a small file can hold any
number of large ones. Whoever copies, writes or hashes them all asks here first. One that keys share is one.
"""

from headgate.bundle.model import Location, VariantSet
from headgate.bundle.reading.reader import Bundle
from headgate.errors import HeadgateError

__all__ = ["reject_overlapping_responses"]


def reject_overlapping_responses(bundle: Bundle) -> None:
    """Refuse a bundle whose responses together are longer than itself, with a `HeadgateError`.

    Of a bundle that was cut those count that are there as a whole: nobody can load the others.
    """
    size = bundle.size
    locations: set[Location] = set()
    for found in bundle.metadata.requests.values():
        locations.update(found.locations.in_order() if isinstance(found, VariantSet) else (found,))
    total = sum(one.length for one in locations if one.offset + one.length <= size)
    if total > size:
        raise HeadgateError(
            f"the responses lie inside one another, {total} bytes of them in a bundle of {size}; it could fill any "
            "disk, so none of it is taken, but get gives single ones"
        )
