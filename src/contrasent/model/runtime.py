"""Exported models: one graph from token ids to vectors, used without torch and transformers.

An export is a folder that needs nothing else::

    export.json              what it is, how the model was set, how far its vectors are from torch's
    encoder.onnx             the graph; or encoder.xml and encoder.bin for OpenVINO
    tokenizer.json           (and tokenizer_config.json)

Beside a model it lies in the folder of its name: ``MODEL/onnx``, ``MODEL/openvino-int8``.
"""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import MissingExtraError, ModelError, OptionError, OutputError, check_choice
from contrasent.model.calls import BUDGET, by_budget, distinct_tokens, in_calls
from contrasent.model.exports import (
    EXPORTS,
    NAME,
    Export,
    read_export,
    source_files,
)
from contrasent.model.golden import digest
from contrasent.model.prompts import Prompts
from contrasent.model.sessions import Run, check_session, open_session
from contrasent.processes import threads
from contrasent.text.tokens import Tokenizer, lowered
from contrasent.types import Tokens, Vectors

log = logging.getLogger(__name__)

RUNTIMES = ("torch", *EXPORTS, "auto")
GRAPHS = {"onnx": "encoder.onnx", "openvino": "encoder.xml"}
FEW = 8
"""Up to so many texts are computed in one call by all cores, more by a call for each core."""


class Exported:
    """An exported model; sentences in, vectors out, as of ``Encoder``.

    Attributes:
        truncated: how many of the sentences of the last ``encode`` were cut.
    """

    def __init__(
        self, export: Export, tokenizer: Tokenizer, graph: Path, prompts: Prompts | None = None
    ) -> None:
        self.export, self.tokenizer, self._graph = export, tokenizer, graph
        self.prompts = prompts or Prompts()
        self._sessions: dict[int, Run] = {}
        self._opening = threading.Lock()
        self.truncated = 0

    @classmethod
    def load(cls, folder: str | Path, *, model: Path | None = None) -> "Exported":
        """Open an export."""
        place = Path(folder)
        export = read_export(place)
        if model is not None and export.sources and source_files(model) != export.sources:
            raise ModelError(
                f"{place}: was made from other weights or settings than {model} has now; export "
                "the model again (contrasent export ... --overwrite)"
            )
        tokenizer = Tokenizer.load(place, max_tokens=export.facts.max_tokens)
        graph = place / GRAPHS[export.engine]
        check_session(export.engine, graph)
        for name, saved in export.graph.items():
            if digest(place / name) != saved:
                raise ModelError(
                    f"{place / name}: is not as it was exported (its sha256 differs); copy it or "
                    "export the model again"
                )
        return cls(export, tokenizer, graph, Prompts.read(place))

    @property
    def identity(self) -> str:
        """Of the torch model that it was made from."""
        return self.export.facts.identity

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        return self.export.facts.dimension

    @property
    def max_tokens(self) -> int:
        """Sentences are cut at this many tokens, special tokens included."""
        return self.export.facts.max_tokens

    def check(self, *, pooler: str | None, max_tokens: int | None) -> None:
        """Refuse settings that a graph, in which they are fixed, does not have."""
        fixed = self.export.facts
        for option, wanted, had in (
            ("--pooler", pooler, fixed.pooling),
            ("--max-tokens", max_tokens, fixed.max_tokens),
        ):
            if wanted is not None and wanted != had:
                raise OptionError(
                    option, wanted, f"the export has {had!r} inside; export the model again with it"
                )

    def tokenise(
        self, sentences: Sequence[str], prompt: str = ""
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Token ids of sentences after (or in) a prompt, and which were cut at ``max_tokens``."""
        if self.export.facts.lower_case:
            sentences, prompt = lowered(sentences, prompt)
        return self.tokenizer(sentences, prompt)

    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of tokenised sentences in one call, padded to the longest or a little more."""
        return self._call(tokens, self._session(1))

    def encode(
        self, sentences: Sequence[str], *, batch: int = 64, prompt: str | None = None
    ) -> Vectors:
        """Vectors of sentences, float32, in the order given.

        Equal sentences are computed once; the longest come first, a call for each core at once.
        """
        tokens, where = distinct_tokens(self, sentences, prompt, log)
        cores = threads() if len(tokens) > FEW else 1
        most = min(batch, -(-len(tokens) // cores))
        # By padded widths: as many rows in every call of a width, and so few shapes.
        widths = np.array([self._width(length) for length in tokens.lengths.tolist()], np.int64)
        calls = by_budget(widths, max(1, most), budget=BUDGET)
        run = self._session(cores)

        def embed(part: Tokens) -> Vectors:
            return self._call(part, run)

        if cores == 1:
            return in_calls(embed, tokens, self.dimension, calls)[where]
        with ThreadPoolExecutor(cores, "contrasent-encode") as pool:
            return in_calls(embed, tokens, self.dimension, calls, pool)[where]

    def _session(self, streams: int) -> Run:
        """The graph, opened for a number of calls at once; kept, as opening takes a while."""
        with self._opening:
            if streams not in self._sessions:
                engine, precision = self.export.engine, self.export.precision
                self._sessions[streams] = open_session(
                    engine, self._graph, precision, streams=streams
                )
            return self._sessions[streams]

    def _call(self, tokens: Tokens, run: Run) -> Vectors:
        pad = self.tokenizer.specials.pad
        ids, mask = tokens.pad(pad)
        width = ids.shape[1]
        more = ((0, 0), (0, self._width(width) - width))
        ids = np.pad(ids, more, constant_values=pad)
        return run(ids, np.pad(mask.astype(np.int64), more))

    def _width(self, tokens: int) -> int:
        """The width of a call whose longest row has so many tokens.

        OpenVINO makes kernels for each new shape, which takes about as long as a call in int8, and
        keeps memory for them: few widths, an eighth apart at most. In float32 the padding would
        cost more than it saves.
        """
        if self.export.engine == "onnx":
            return tokens
        step = 4
        if self.export.precision == "int8":
            while 8 * step < tokens:
                step *= 2
        return min(-(-tokens // step) * step, self.max_tokens)


def check_engine(engine: str) -> None:
    """Refuse what cannot be exported to, before torch is used."""
    check_choice("--to", engine, GRAPHS)
    needed = {"onnx": "onnx", "onnxscript": "onnx", "onnxruntime": "onnx"}
    if engine == "openvino":
        needed["openvino"] = "openvino"
    for package, extra in needed.items():
        if find_spec(package) is None:
            raise MissingExtraError(package, extra, f"exporting to {engine}")


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a folder that exists, unless it is an export that may be replaced."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / NAME).is_file():
        raise OutputError(f"{target}: exists and is no export; choose another folder with -o")
    if not overwrite:
        raise OutputError(f"{target}: exists; choose another folder with -o, or use --overwrite")
