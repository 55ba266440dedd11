"""Rendezvous hashing: all agree on the owner, and a change of the masters moves only what it has to."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.link.master_connection import Sharding, sharding_item

MASTERS = st.lists(st.text(min_size=1), min_size=1, max_size=6, unique=True)
ITEMS = st.lists(st.binary(max_size=40), max_size=20)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def owners(masters, items, live=None):
    sharding = Sharding(masters)
    return {item: sharding.owner(item, set(masters) if live is None else live) for item in items}


@given(MASTERS, ITEMS, st.randoms(use_true_random=False))
def test_the_order_of_the_masters_has_no_effect(masters, items, random):
    shuffled = random.sample(masters, len(masters))
    assert owners(masters, items) == owners(shuffled, items)


@given(MASTERS, ITEMS, st.data())
def test_a_lost_master_moves_only_its_own_items(masters, items, data):
    lost = data.draw(st.sampled_from(masters))
    before, after = owners(masters, items), owners(masters, items, set(masters) - {lost})
    assert {item for item in items if before[item] != after[item]} == {item for item in items if before[item] == lost}


@given(MASTERS, ITEMS)
def test_each_item_has_an_owner_unless_no_master_is_live(masters, items):
    assert set(owners(masters, items).values()) <= set(masters)
    assert set(owners(masters, items, set()).values()) <= {None}


@given(st.lists(st.tuples(NAMES, st.binary(max_size=8)), unique=True, max_size=20))
def test_different_domains_and_identifiers_are_different_items(pairs):
    assert len({sharding_item(*pair) for pair in pairs}) == len(pairs)


def test_items_are_spread_evenly():
    """4,000 domains over 2 to 7 masters: each has its share within a fifth; the standard error is at most 5 %."""
    for count in range(2, 8):
        masters = [f"10.0.0.{number}:10004" for number in range(count)]
        found = list(owners(masters, [sharding_item(f"domain-{number}") for number in range(4_000)]).values())
        assert all(abs(found.count(address) - 4_000 / count) < 800 / count for address in masters)
