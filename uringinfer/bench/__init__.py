"""Benchmarks of a model in the shape people know: prompt processing and text generation, tokens per second.

`workload` says what is fed, `measure` feeds it and keeps the counters, `sweep` does that at several settings,
each in a process of its own. `roofline` says how fast a run could be at most.
"""
