"""One timed job in a process of its own; prints one JSON line.

python -m benchmarks.worker JOB [JSON OPTIONS]
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def sentences(count: int, words: tuple[int, int] | None = None) -> list[str]:
    """Wikipedia sentences where CONTRASENT_DATA is set, else the packages' documentation."""
    data = os.environ.get("CONTRASENT_DATA")
    found: list[str] = []
    if data:
        import gzip

        path = Path(data) / "wiki" / "enwiki_sentences_1m.txt.gz"
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                found.append(line.strip())
                if len(found) == count * 8:
                    break
    else:
        from contrasent.documents.docstrings import documented, installed_sources

        found = [one.summary for one in documented(installed_sources())]
    if words:
        found = [s for s in found if words[0] <= len(s.split()) <= words[1]]
    if len(found) < count:
        sys.exit(f"only {len(found)} sentences at hand, {count} are needed; set CONTRASENT_DATA")
    return found[:count]


def minilm() -> str:
    """Folder of all-MiniLM-L6-v2."""
    from contrasent.model.pretrained import resolve

    return str(resolve("all-MiniLM-L6-v2"))


def encode_ours(options: dict[str, Any]) -> dict[str, float]:
    """Sentences a second of Encoder.encode, after a warm-up."""
    from contrasent.encoder.encoder import Encoder

    logging.disable(logging.WARNING)
    texts = sentences(options["count"])
    encoder = Encoder.load(minilm(), normalise=True)
    return _rate(lambda: encoder.encode(texts, batch=options["batch"]), texts, options)


def encode_theirs(options: dict[str, Any]) -> dict[str, float]:
    """The same by SentenceTransformer.encode."""
    from sentence_transformers import SentenceTransformer

    texts = sentences(options["count"])
    model = SentenceTransformer(minilm())
    return _rate(lambda: model.encode(texts, batch_size=options["batch"]), texts, options)


def _rate(work: Callable[[], Any], texts: list[str], options: dict[str, Any]) -> dict[str, float]:
    import numpy as np

    work()
    began = time.perf_counter()
    vectors = work()
    seconds = time.perf_counter() - began
    if options.get("keep"):
        np.save(options["keep"], np.asarray(vectors, dtype=np.float32), allow_pickle=False)
    return {"rate": len(texts) / seconds}


JOBS = {job.__name__: job for job in (encode_ours, encode_theirs)}


if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]](json.loads(sys.argv[2]))))
