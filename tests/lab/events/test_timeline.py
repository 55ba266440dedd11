from lab.events.timeline import Timeline


def test_events_happen_in_order_of_instant_rank_and_scheduling():
    timeline, seen = Timeline(), []
    for instant, name, rank in ((2.0, "c", 0), (1.0, "b", 0), (1.0, "a", -1), (2.0, "d", 0), (3.0, "e", 0)):
        timeline.schedule(instant, lambda argument: seen.append((timeline.now, argument)), name, rank=rank)
    timeline.run(3.0)
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]
    assert timeline.now == 3.0
    timeline.run(3.5)
    assert seen[4:] == [(3.0, "e")]


def test_an_event_can_schedule_another_at_its_own_instant():
    timeline, seen = Timeline(), []
    timeline.schedule(1.0, lambda _: timeline.schedule(1.0, seen.append, "second"))
    timeline.schedule(1.0, seen.append, "first")
    timeline.run(2.0)
    assert seen == ["first", "second"]
