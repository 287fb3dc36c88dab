"""How much of a document is found in the rows of its index: of sentences that are known.

    python -m benchmarks.fidelity [FORMAT ...] [--show N]

Documents of every format are made in a temporary folder and read and cut as ``contrasent index``
does it. Printed for each format: how many sentences stand in the rows word for word (white space
aside), how many stand there altered (their own word is found, the sentence is not), how many are
lost without a word, and how many are lost while a line of the report names their file. Sentences
that must not be read (those of a hidden sheet) are to be named.
Exit 1: less than 99.5 % found in a format, one altered, or one lost in silence.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.fidelity_files import MAKERS, File
from contrasent.documents.folder import DocumentSource, file_of
from contrasent.documents.passages import cut

GOAL = 0.995
MAX_TOKENS = 200  # words of a passage
_OWN = re.compile(r"[a-z]{6,}\d{1,6}")  # the word that only one sentence has


def judged(files: list[File], folder: Path) -> dict[str, dict[str, list[str]]]:
    """Of each format the sentences found, altered, lost and named."""
    for file in files:
        (folder / file.format).mkdir(exist_ok=True)
        (folder / file.format / file.name).write_bytes(file.content)
    source, texts = DocumentSource(folder), defaultdict[str, list[str]](list)
    for text, _, about in cut(source, lambda some: [len(t.split()) for t in some], MAX_TOKENS):
        name = file_of(str(about["document"]), source.files)
        shown = [str(value) for key, value in about.items() if key not in ("document", "sections")]
        texts[name] += [text, *shown]
    lines = "\n".join(name for one in source.report.skipped.values() for name in one.names)
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in files:
        name = f"{file.format}/{file.name}"
        rows = [" ".join(text.split()) for text in texts[name]]
        whole, named = "\n".join(rows), f"{name}" in lines
        for sentence in [*file.sentences, *file.hidden]:
            own = _OWN.search(sentence)
            if " ".join(sentence.split()) in whole:
                kind = "found" if sentence in file.sentences else "revealed"
            elif own and own[0] in whole:
                kind = "altered"
            elif named:
                kind = "named"
            else:
                kind = "lost"
            if sentence in file.hidden and kind == "named":
                kind = "rightly named"
            found[file.format][kind].append(f"{name}: {sentence}")
    return found


def main() -> None:
    """Make, read, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("formats", nargs="*", metavar="FORMAT")
    parser.add_argument("--show", type=int, default=3, help="sentences that are not found")
    arguments = parser.parse_args()
    began, files = time.monotonic(), list[File]()
    for make in MAKERS:
        name, made = make.__name__.replace("_", " "), list[File]()
        try:
            made.extend(make())
        except ImportError as error:
            print(f"left out, rest of {name}: needs {error.name} (contrasent[bench])")
        else:
            if not made:
                print(f"left out, {name}: the program soffice is not on the PATH")
        files += [one for one in made if not arguments.formats or one.format in arguments.formats]
    with tempfile.TemporaryDirectory() as folder:
        found = judged(files, Path(folder))
    print("format   sentences   found      % altered  lost named")
    bad = False
    for name, kinds in found.items():
        counts = [len(kinds[kind]) for kind in ("found", "altered", "lost", "named")]
        share = counts[0] / max(1, sum(counts))
        fine = share >= GOAL and not (counts[1] or counts[2] or kinds["revealed"])
        bad = bad or not fine
        rightly = f" + {len(kinds['rightly named'])}" * bool(kinds["rightly named"])
        line = f"{name:8} {sum(counts):9} {counts[0]:7} {100 * share:6.1f} {counts[1]:7}"
        print(f"{line} {counts[2]:5} {counts[3]:5}{rightly}{'' if fine else '  <'}")
        for kind in ("altered", "lost", "named", "revealed"):
            for sentence in kinds[kind][: arguments.show]:
                print(f"    {kind}: {sentence}")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(bad)


if __name__ == "__main__":
    main()
