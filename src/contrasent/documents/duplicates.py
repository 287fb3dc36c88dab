"""Texts that say the same: exact copies, near copies by MinHash, and paragraphs of every page."""

# A near copy shares at least ALIKE of all runs of three words of both texts (Jaccard). Candidates
# come from MinHash signatures in bands (Broder 1997; Leskovec, Rajaraman and Ullman, Mining of
# Massive Datasets, section 3.4) and are compared exactly; a copy at the threshold is missed with a
# probability of 8e-6. A text has MOST candidates and a bucket MOST texts, so that time is linear.

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from contrasent.documents.sections import Document

ALIKE = 0.85
RUN = 3
BANDS, ROWS = 16, 4  # at 0.85, (1 - 0.85**4)**16 of the copies are missed
MOST = 16
_SEEN = 0.6  # share of common minima below which texts are near copies with probability 1e-8
# Scripts without spaces: each letter is a word.
_LETTERS = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_LETTERS}]|[^\W{_LETTERS}]+")
_NUMBER = re.compile(r"\d+")
_random = np.random.default_rng(20_261_122)
_FACTORS = _random.integers(1, 1 << 63, (BANDS * ROWS, 1), dtype=np.uint64) | np.uint64(1)
_SUMMANDS = _random.integers(0, 1 << 63, (BANDS * ROWS, 1), dtype=np.uint64)


def shingles(text: str) -> NDArray[np.uint64]:
    """Hashes of a text's runs of ``RUN`` words, letter case aside, each once; sorted."""
    words = [zlib.crc32(word.encode("utf-8")) for word in _WORD.findall(text.casefold())]
    hashes = np.array(words, np.uint64)
    run = hashes[: max(len(hashes) - RUN + 1, 1)].copy()
    for i in range(1, min(RUN, len(hashes))):  # modulo 2**64
        run = run * np.uint64(0x9E3779B97F4A7C15) + hashes[i : i + len(run)]
    return np.unique(run)


def hash_of(text: str) -> int:
    """64 bits of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def jaccard(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> float:
    """Shared shingles by all shingles; 0 where there are none."""
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / max(len(one) + len(other) - shared, 1)


def near_copies(texts: Sequence[str]) -> list[int]:
    """For each text the first one before it that it copies, itself if it is none's copy."""
    first: list[int] = []
    exact: dict[str, int] = {}
    buckets: dict[bytes, list[int]] = {}
    held: dict[int, tuple[NDArray[np.uint64], NDArray[np.uint32]]] = {}
    for i, text in enumerate(texts):
        key = " ".join(text.casefold().split())
        found = exact.setdefault(key, i)
        if found == i and len(runs := shingles(text)):
            least = _minima(runs)
            bands = [bytes([at]) + row.tobytes() for at, row in enumerate(least.reshape(BANDS, -1))]
            near = Counter(j for band in bands for j in buckets.get(band, ()))
            for j in sorted(j for j, _ in near.most_common(MOST)):
                other, minima = held[j]
                if (least == minima).mean() >= _SEEN and jaccard(runs, other) >= ALIKE:
                    found = exact[key] = j
                    break
            else:
                held[i] = runs, least
                for band in bands:
                    bucket = buckets.setdefault(band, [])
                    if len(bucket) < MOST:
                        bucket.append(i)
        first.append(found)
    return first


def _minima(runs: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """MinHash of some shingles."""
    with np.errstate(over="ignore"):
        # The high bits of a multiplication modulo 2**64 (Dietzfelbinger et al. 1997).
        least: NDArray[np.uint64] = ((runs * _FACTORS + _SUMMANDS) >> np.uint64(32)).min(axis=1)
    return least.astype(np.uint32)


def recurring(documents: Sequence[Document]) -> set[int]:
    """Hashes of paragraphs that so many documents share that they say nothing of any."""
    # Documents of one paragraph do not count: rows of a table may well be alike.
    counts: Counter[int] = Counter()
    for document in documents:
        paragraphs = {_key(p) for section in document.sections for p in section.paragraphs}
        if len(paragraphs) > 1:
            counts.update(paragraphs)
    most = max(3, min(10, len(documents) / 2), len(documents) / 1000)
    return {key for key, count in counts.items() if count >= most}


def without(document: Document, paragraphs: set[int]) -> Document:
    """A document without some paragraphs, or as it is if it would lose all."""
    sections = tuple(
        replace(section, paragraphs=kept)
        for section in document.sections
        if (kept := tuple(p for p in section.paragraphs if _key(p) not in paragraphs))
    )
    return replace(document, sections=sections) if sections else document


def _key(paragraph: str) -> int:
    """A paragraph's hash, numbers and letter case aside."""
    return hash_of(_NUMBER.sub("0", " ".join(paragraph.casefold().split())))
