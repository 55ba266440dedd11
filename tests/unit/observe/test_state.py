from headgate.observe import DomainState, GateState, HeldIdentifier, LinkedMasterState, merge_states
from headgate.observe.state import identifier_digest, identifier_text


def domain(name, *held, accepted=0, delayed=0, rejected=0, rules=("1/s burst 1",)):
    return DomainState(name, rules, accepted=accepted, delayed=delayed, rejected=rejected, held=held)


def test_no_states_are_merged_to_zero_workers():
    assert merge_states([]).workers == 0


def test_one_is_itself():
    state = GateState((domain("a", accepted=1),))
    assert merge_states([state]) is state


def test_totals_add_up_and_the_longest_hold_counts():
    one = GateState(
        (domain("a", HeldIdentifier("x", 10.0, 1.0), HeldIdentifier("y", 12.0, 3.0), accepted=1, rejected=2),),
        delayed_now=1,
        connections={"idle": 3},
        counters={"link_sent": 4},
        masters=(LinkedMasterState("a:1"), LinkedMasterState("b:1", up=True)),
    )
    other = GateState(
        (domain("a", HeldIdentifier("x", 11.0, 2.0), accepted=10, delayed=5), domain("b", accepted=7)),
        delayed_now=2,
        connections={"idle": 3, "queued": 1},
        counters={"link_sent": 1, "gateway_slow": 1},
        masters=(LinkedMasterState("a:1", up=True), LinkedMasterState("b:1", up=True)),
    )
    both = merge_states([one, other])
    first, second = both.domains
    assert (first.accepted, first.delayed, first.rejected) == (11, 5, 2)
    assert first.held == (HeldIdentifier("y", 12.0, 3.0), HeldIdentifier("x", 11.0, 2.0))
    assert second.accepted == 7
    assert (both.delayed_now, both.connections, both.workers) == (3, {"idle": 6, "queued": 1}, 2)
    assert both.masters == one.masters  # connected to all workers
    assert both.counters == {"link_sent": 5, "gateway_slow": 1}


def test_at_most_ten_are_named():
    states = [
        GateState((domain("a", *(HeldIdentifier(f"{n}{m}", 10.0 * n + m, 1.0) for m in range(10))),)) for n in range(2)
    ]
    (both,) = merge_states(states).domains
    assert [held.identifier for held in both.held] == [f"1{m}" for m in range(9, -1, -1)]


def test_bytes_that_are_not_utf8_are_escaped():
    assert identifier_text(b"\xff\xfe") == r"\xff\xfe"
    assert identifier_text("grün".encode()) == "grün"


def test_identifier_that_is_not_an_address_is_a_digest():
    """The digest is that of `printf %s KEY | sha256sum`."""
    assert identifier_digest(b"alice") == "sha256:2bd806c97f0e00af"
    assert identifier_digest(b"12345").startswith("sha256:")
    assert identifier_digest(b"\xff\xfe").startswith("sha256:")
    assert identifier_digest(b"192.0.2.1") == "192.0.2.1"
    assert identifier_digest(b"2001:db8::/64") == "2001:db8::/64"
