"""The streams of random numbers."""

import statistics

from lab.chance import GAMMA, MASK, UNIT, Chance, Purpose, mix


def test_the_generator_is_splitmix64():
    # The first numbers of the published generator with the seed 1234567.
    state, numbers = 1234567, []
    for _ in range(5):
        state = (state + GAMMA) & MASK
        numbers.append(mix(state))
    assert numbers == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_a_stream_draws_the_mixed_states_that_follow_its_first():
    chance = Chance(7)
    state, draw = chance.state(Purpose.POLICY, 3), chance.stream(Purpose.POLICY, 3)
    for _ in range(100):
        state = (state + GAMMA) & MASK
        assert draw() == (mix(state) >> 11) * UNIT


def test_a_stream_depends_on_seed_purpose_and_agent_alone():
    def numbers(seed, purpose, agent):
        draw = Chance(seed).stream(purpose, agent)
        return [draw() for _ in range(3)]

    assert numbers(1, Purpose.BEHAVIOUR, 2) == numbers(1, 1, 2)
    different = [(1, 1, 2), (2, 1, 2), (1, 2, 2), (1, 1, 3), (1, 2, 1), (2, 1, 1), (1, "jitter", 2), (1, "gate", 2)]
    assert len({tuple(numbers(*parts)) for parts in different}) == len(different)


def test_the_numbers_are_uniform_over_agents_and_over_a_stream():
    chance = Chance(0)
    over_agents = [chance.stream(Purpose.BEHAVIOUR, agent)() for agent in range(20_000)]
    draw = chance.stream(Purpose.BEHAVIOUR, 0)
    over_time = [draw() for _ in range(20_000)]
    for numbers in (over_agents, over_time):
        assert all(0 <= number < 1 for number in numbers)
        assert abs(statistics.fmean(numbers) - 1 / 2) < 0.01
        assert abs(statistics.pvariance(numbers) - 1 / 12) < 0.002
        assert abs(statistics.correlation(numbers[:-1], numbers[1:])) < 0.02
