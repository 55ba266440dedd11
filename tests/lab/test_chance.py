"""The streams of random numbers."""

from lab.chance import GAMMA, MASK, Chance, Purpose, mix


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


def test_a_stream_depends_on_seed_purpose_and_agent_alone():
    def numbers(seed, purpose, agent):
        draw = Chance(seed).stream(purpose, agent)
        return [draw() for _ in range(3)]

    assert numbers(1, Purpose.BEHAVIOUR, 2) == numbers(1, 1, 2)
    different = [(1, 1, 2), (2, 1, 2), (1, 2, 2), (1, 1, 3), (1, 2, 1), (2, 1, 1), (1, "jitter", 2), (1, "gate", 2)]
    assert len({tuple(numbers(*parts)) for parts in different}) == len(different)
