from headgate.observe import AdviceState
from headgate.runtime.gate.advice.change_log import ChangeLog

NOW = 1_700_000_000.0


def state(fraction: float = 0.5, reason: str = "changed", published: float | None = None) -> AdviceState:
    published = fraction if published is None else published
    return AdviceState(user_agent="*", fraction=fraction, published=published, reason=reason)


class Logged(list[str]):
    def __init__(self) -> None:
        self.log = ChangeLog(self.append)

    def decided(self, *classes: AdviceState, down: bool = False, after: float) -> list[str]:
        self.clear()
        self.log.decided(classes, down=down, now=NOW + after)
        return list(self)


def test_a_fraction_is_logged_when_it_changes():
    logged = Logged()
    static = AdviceState(user_agent="Bot", fraction=0.1, published=0.1)
    assert logged.decided(static, state(), after=0) == ["traffic advice: * 0.5 (changed)"]
    assert logged.decided(static, state(reason="settled"), after=60) == []
    assert logged.decided(state(0.0, "disallowed"), after=120) == ["traffic advice: * disallowed (disallowed)"]
    assert logged.decided(state(0.25, published=1.0), after=180) == ["traffic advice: * 0.25 (not published)"]


def test_lines_of_a_kind_have_a_pause_and_the_last_change_is_not_lost():
    logged = Logged()
    logged.decided(state(0.5), after=0)
    assert [logged.decided(state(0.5 + second / 100), after=second) for second in range(1, 10)] == [[]] * 9
    assert logged.decided(state(0.59), after=10) == ["traffic advice: * 0.59 (changed)"]


def test_a_class_that_does_not_obey_is_a_warning_once():
    logged = Logged()
    logged.decided(state(), after=0)
    warning = "warning: traffic advice: *: this class does not obey, and the gate has to limit it"
    assert logged.decided(state(reason="does not obey"), after=60) == [warning]
    assert logged.decided(state(reason="does not obey"), after=120) == []
    assert logged.decided(state(reason="settled"), after=180) == ["traffic advice: all classes obey"]


def test_a_class_without_fetches_is_logged_once():
    logged = Logged()
    logged.decided(state(), after=0)
    line = "traffic advice: *: this class sends requests and does not fetch the advice"
    assert logged.decided(state(reason="no fetch"), after=60) == [line]
    assert logged.decided(state(reason="no fetch"), after=120) == []
    assert logged.decided(state(reason="settled"), after=180) == ["traffic advice: all classes fetch the advice"]


def test_an_origin_that_is_down_is_logged_at_both_ends():
    logged = Logged()
    logged.decided(state(), after=0)
    line = "traffic advice: the origin is unreachable, so the fractions stay"
    assert logged.decided(state(), down=True, after=60) == [line]
    assert logged.decided(state(), down=True, after=120) == []
    assert logged.decided(state(), after=180) == ["traffic advice: the origin is reachable again"]
