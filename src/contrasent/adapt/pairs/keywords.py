"""A few telling words ask for the passage in which they stand, as people type them into a box."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from contrasent.adapt.pairs import Pair, Split, random_of
from contrasent.adapt.passages import Passage
from contrasent.search.lexical import STOP_WORDS, words

FEWEST, MOST = 2, 4
"""Words of a query."""
TAKEN_FROM = 8
"""It is drawn from so many words, the most telling ones."""
_STOP = frozenset().union(*STOP_WORDS.values())


def keyword_query(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """Words that stand often in a passage and in few others, by BM25's weights.

    A word that stands in one passage alone is most likely a name or a slip, and is left out.
    """
    holding = Counter(word for passage in passages for word in set(words(passage.text)))
    for number in numbers:
        count = Counter(words(passages[number].text))
        length = count.total()
        weights = {
            word: math.log(1 + (len(passages) - holding[word] + 0.5) / (holding[word] + 0.5))
            * often
            / (often + 0.3 + 0.9 * length / 100)
            for word, often in count.items()
            if holding[word] > 1 and len(word) > 2 and word not in _STOP and "_" not in word
        }
        best = sorted(weights, key=lambda word: (-weights[word], word))[:TAKEN_FROM]
        random = random_of(seed, 4, number)
        size = int(random.integers(FEWEST, MOST + 1))
        if len(best) >= size:
            query = " ".join(str(word) for word in random.permutation(best)[:size])
            yield Pair(query, passages[number].indexed, number, "keywords")
