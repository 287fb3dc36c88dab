"""What the benchmarks train on and encode: sentences of Wikipedia, by all-MiniLM-L6-v2."""

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def sentences(count: int) -> list[str]:
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
    if len(found) < count:
        sys.exit(f"only {len(found)} sentences at hand, {count} are needed; set CONTRASENT_DATA")
    return found[:count]


def minilm() -> str:
    """Folder of all-MiniLM-L6-v2."""
    from contrasent.model.pretrained import resolve

    return str(resolve("all-MiniLM-L6-v2"))
