"""The modes of `scripts/torture.py`: each does one kind of harm, case by case, and says what it broke.

A mode has `prepare(directory)`, which makes what its cases share, and `run(made, number, seed)`, which does
one case and returns what is wrong in words, or None. The same number and seed do the same harm.
"""
