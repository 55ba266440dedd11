from headgate.observe import AdviceState, GateState, gate_metrics


def samples(*classes: AdviceState) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels["user_agent"]): sample.value
        for metric in gate_metrics(GateState(advice=classes), [])
        for sample in metric.samples
        if "user_agent" in sample.labels
    }


def test_each_value_of_a_class_is_a_metric():
    computed = AdviceState(
        user_agent="*",
        fraction=0.25,
        published=1.0,
        demand=400.0,
        arrivals=100.0,
        in_force=0.3,
        reason="changed",
    )
    assert samples(computed, AdviceState(user_agent="Bot", fraction=0.5, published=0.5)) == {
        ("headgate_advice_fraction", "*"): 1.0,
        ("headgate_advice_fraction", "Bot"): 0.5,
        ("headgate_advice_computed_fraction", "*"): 0.25,
        ("headgate_advice_computed_fraction", "Bot"): 0.5,
        ("headgate_advice_demand", "*"): 400.0,
        ("headgate_advice_arrivals", "*"): 100.0,
        ("headgate_advice_fraction_in_force", "*"): 0.3,
    }


def test_without_advice_there_are_no_metrics_of_it():
    assert samples() == {}


def test_a_name_that_is_not_unicode_is_replaced():
    assert ("headgate_advice_fraction", "a?") in samples(AdviceState(user_agent="a\udcff", fraction=1.0, published=1.0))
