from tests.unit.rlqs.envoys import Envoy, World, bucket_id, decode_actions, encode_report


def test_the_first_request_is_assigned_a_token_bucket():
    world = World("10/s burst 20")
    stream = world.service.open(lambda: None)
    assert (
        list(
            world.service.receive(
                stream, encode_report(b"api", [(bucket_id(b"c"), 0, 1, 0)]), now=world.now, moment=0.0
            )
        )
        == []
    )
    ((key, kind, numbers),) = decode_actions(stream.take())
    assert (key, kind) == (bucket_id(b"c"), "tokens")
    assert numbers == {"ttl": 10, "tokens": 19, "fill": 10_000, "interval": 1_000}
    assert world.master.totals["api"].accepted == 1


def test_a_slow_rule_is_kept_and_its_hold_ends_on_time():
    world = World("6/min burst 3")
    envoy = Envoy(world, phase=4.0)
    passed = []
    for step in range(150):
        world.time = step / 10
        world.turn()
        envoy.tick()
        if envoy.request():
            passed.append(world.time)
    assert passed == [0.0, 0.1, 0.2, 10.0]
    assert world.controls


def test_an_identifier_that_is_held_already_is_denied_at_another_envoy_after_its_first_request():
    world = World("1/3s burst 2")
    one, two = Envoy(world), Envoy(world)
    assert [one.request() for _ in range(3)] == [True, True, False]
    world.time = 5.0
    one.tick()
    assert [two.request() for _ in range(3)] == [True, False, False]
