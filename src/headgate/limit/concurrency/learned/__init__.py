"""Learns how many requests an origin can work on at once, from their latencies and their rate.

By Little's law, the completions per second times the latency without a queue (the baseline) are the requests that an
origin works on; what else is in flight waits in a queue there. While the limit is reached, these two numbers say
whether it is too high. Neither is certain: a longer latency is a queue, or work that takes longer, and a baseline is a
mean of few requests. So each change of the limit is a *trial*: the throughput before and after it is compared, and

- a lower limit stays only if the throughput does not fall with it. If it does, there was no queue: the limit returns,
  and the latencies that were measured are the new baseline;
- a higher limit stays only if the throughput rises with it.

While the limit is not reached, it stays as it is, and responses tell the baseline. At the start, with neither, each
response permits one request more, until the throughput does not follow and most responses get slower. Only an origin
that is overloaded from the start gets a lower limit in order to measure: step by step, until the throughput falls.

`limit` collects the requests that end into windows (`domain_windows`, with a `baseline` for each domain). At the end of
each window `law` decides: `phases` is the table of what is known and tried, `growth` the start, `measurement` what is
measured of one limit, `targets` what limit that asks for, `trial` how a change is judged, and `probes` when a higher
limit is tried. `capacity` is how many requests the origin answers per second.
"""

from headgate.limit.concurrency.learned.limit import LearnedLimit

__all__ = ["LearnedLimit"]
