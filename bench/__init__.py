"""Measurements against real peers, side by side in one run, told as ratios: `make bench`.

Each module here named `bench_…` measures one part. It offers `run(rounds) -> list[Row]`, and it proves that its own
result is right before it takes a time: see `bench.measure`.
"""

__all__: list[str] = []
