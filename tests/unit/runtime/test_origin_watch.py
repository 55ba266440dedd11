"""Lines about origins at which requests fail."""

from headgate.runtime.origin_watch import INTERVAL, OriginWatch


def test_each_origin_has_at_most_one_line_in_an_interval_and_no_failure_is_left_out():
    lines: list[str] = []
    watch = OriginWatch(lines.append)

    def look(now, **failures):
        watch.look({name: {"timeout": count, "unreachable": 0} for name, count in failures.items()}, now=now)
        found = lines[:]
        lines.clear()
        return found

    assert look(0, a=0, b=0) == []
    assert look(1, a=2, b=0) == ["warning: origin a: requests fail (timeout 2)"]
    assert look(2, a=5, b=1) == ["warning: origin b: requests fail (timeout 1)"]
    assert look(1 + INTERVAL, a=6, b=1) == ["warning: origin a: requests fail (timeout 4)"]
    assert look(99, b=1) == []
    assert look(99, a=1, b=1) == ["warning: origin a: requests fail (timeout 1)"]
