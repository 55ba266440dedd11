from headgate.bundle.sources.selection import SkipReport, ignore_message


def told_by(left_out: SkipReport) -> list[str]:
    told: list[str] = []
    left_out.tell(told.append, where="site.har")
    return told


def test_each_reason_has_one_message_with_count_and_example() -> None:
    left_out = SkipReport()
    left_out.add("hidden", "a")
    left_out.add("no URL", "b")
    left_out.add("hidden", "c")
    assert told_by(left_out) == ["site.har: left out 2, such as 'a': hidden", "site.har: left out 'b': no URL"]


def test_an_example_is_short_and_cannot_speak_to_a_terminal() -> None:
    left_out = SkipReport()
    left_out.add("not http or https", "data:text/plain," + "x" * 1_000_000)
    left_out.add("hidden", "\x1b[2J\udcff\n")
    long, wild = told_by(left_out)
    assert len(long) < 200
    assert wild.isprintable()


def test_nothing_left_out_gives_no_message() -> None:
    assert told_by(SkipReport()) == []
    ignore_message("nobody hears")
