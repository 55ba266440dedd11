import pytest

from headgate.errors import WireError
from headgate.link.master_connection import Sharding, sharding_item

MASTERS = ["tcp://10.0.0.1:10004", "tcp://10.0.0.2:10004", "tcp://10.0.0.3:10004"]


@pytest.mark.parametrize(
    ("domain", "identifier", "owner"),
    [
        ("default", b"", 1),
        ("api", b"", 2),
        ("search", b"", 0),
        ("api", b"192.0.2.1", 0),
        ("api", b"192.0.2.2", 0),
        ("api", b"192.0.2.3", 0),
        ("images", b"", 2),
    ],
)
def test_the_owner_stays_the_same_in_all_versions(domain, identifier, owner):
    """Gatekeepers and routers of different versions have to agree."""
    assert Sharding(MASTERS).owner(sharding_item(domain, identifier), set(MASTERS)) == MASTERS[owner]


def test_an_address_that_is_listed_twice_counts_once():
    assert Sharding([*MASTERS, *MASTERS]).owner(b"api\0", MASTERS) == Sharding(MASTERS).owner(b"api\0", MASTERS)


def test_a_long_address_is_a_master_as_well():
    long = "ipc://" + "x" * 200
    assert Sharding([long]).owner(b"api\0", {long}) == long


def test_a_domain_with_a_nul_is_not_an_item():
    with pytest.raises(WireError, match="contains NUL"):
        sharding_item("a\0b")
