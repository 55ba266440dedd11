from headgate.limit.gatekeeper import DelaySlots


def test_those_who_wait_for_one_instant_leave_one_by_one():
    slots = DelaySlots()
    for release in (5.0, 5.0, 5.0, 6.0):
        slots.take(release)
    slots.leave(5.0)
    assert slots.taken == 3
    slots.free(5.0)
    assert slots.taken == 1
    slots.take(7.0)
    slots.free(6.0)
    assert slots.taken == 1


def test_one_who_has_left_leaves_no_more():
    slots = DelaySlots()
    slots.take(5.0)
    for release in (5.0, 5.0, 4.0):
        slots.leave(release)
    assert slots.taken == 0
    slots.take(5.0)
    assert slots.taken == 1
    slots.free(4.9)
    assert slots.taken == 1
    slots.free(5.0)
    slots.leave(5.0)
    assert slots.taken == 0
