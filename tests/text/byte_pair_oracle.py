"""Kimi's tokenizer once more, as plainly as can be: split by another regex engine, merged by a loop."""

import itertools

import regex

# one pattern an alternative, in the order in which they are tried; Han is excluded by a look-ahead here
SPLIT = regex.compile(
    r"\p{Han}+"
    r"|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*"
    r"(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'(?:s|t|re|ve|m|ll|d))?"
    r"|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+"
    r"(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'(?:s|t|re|ve|m|ll|d))?"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)


def encode_plainly(text, ranks):
    """Ids of `text`; `ranks` are the bytes of tokens to their ids."""
    return [token for piece in SPLIT.findall(text) for token in _merge(piece.encode(), ranks)]


def _merge(piece, ranks):
    """Ids of one piece: merge the neighbours whose union has the lowest rank, leftmost first."""
    parts = [bytes([byte]) for byte in piece]
    while True:
        unions = [(ranks[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in ranks]
        if not unions:
            return [ranks[part] for part in parts]
        _, i = min(unions)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
