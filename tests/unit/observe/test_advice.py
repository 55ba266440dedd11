from headgate.observe import AdviceState, GateState, gate_metrics


def samples(*classes: AdviceState) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("headgate_advice_"), *sample.labels.values()): sample.value
        for metric in gate_metrics(GateState(advice=classes), [])
        for sample in metric.samples
        if "user_agent" in sample.labels
    }


def test_each_value_of_a_class_is_a_sample():
    computed = AdviceState("*", 0.25, published=1.0, demand=400.0, arrivals=100.0, in_force=0.3, reason="changed")
    assert samples(computed, AdviceState("Bot", 0.5, published=0.5)) == {
        ("fraction", "*", "published"): 1.0,
        ("fraction", "*", "computed"): 0.25,
        ("fraction", "*", "in_force"): 0.3,
        ("fraction", "Bot", "published"): 0.5,
        ("fraction", "Bot", "computed"): 0.5,
        ("requests_per_second", "*", "demand"): 400.0,
        ("requests_per_second", "*", "arrivals"): 100.0,
    }
    assert samples() == {}


def test_a_name_that_is_not_unicode_is_replaced():
    assert ("fraction", "a?", "published") in samples(AdviceState("a\udcff", 1.0))
