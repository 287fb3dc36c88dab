"""The description of a model in its folder, read and written without torch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import Any

from numpy.typing import NDArray

from contrasent.errors import ModelError, OptionError, OutputError, see
from contrasent.files import read_json, read_object, write_object
from contrasent.model.base import PROMPTS, Prompts
from contrasent.model.golden import read_arrays
from contrasent.model.pooling import (
    FLAGS,
    MODULES,
    OWN,
    POOLERS,
    Part,
    Pooler,
    averaging,
    check_pooler,
    modes,
)

ACTIVATIONS = {
    f"torch.nn.modules.{name}": name.partition(".")[2]
    for name in ("activation.Tanh", "activation.ReLU", "activation.GELU", "linear.Identity")
}
"""Activations of dense layers by their names in model folders."""


SIZES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("num_hidden_layers", "n_layers"), (1, 1000)),
    **dict.fromkeys(("num_attention_heads", "n_heads"), (1, 1024)),
    **dict.fromkeys(("hidden_size", "dim", "embedding_size"), (1, 1 << 16)),
    **dict.fromkeys(("intermediate_size", "hidden_dim"), (1, 1 << 20)),
    **dict.fromkeys(("vocab_size", "max_position_embeddings"), (1, 1 << 24)),
    "type_vocab_size": (0, 1 << 10),
}
"""Keys of an encoder's config.json, with the least and the largest value of each."""

DECIDING = (
    "processing_kwargs", "processor_kwargs", "tokenizer_args", "transformer_task", "query_length",
    "document_length", "query_expansion",
)  # fmt: skip
SIDES: tuple[Any, ...] = ({}, {"padding_side": "left"}, {"padding_side": "right"})
HARMLESS = (None, "feature-extraction", *SIDES)
"""Values of such settings of sentence-transformers beside config.json that change nothing."""

ORIGIN = "origin.json"
"""License, maker and name of a model from a GGUF file, and of those trained from it."""

PARTS = (
    "modules.json", ORIGIN, "*config*.json", "*token*.json", "vocab.*", "unigram.json", "bpe.codes",
    "merges.txt", "*.model", "*.jinja", "*.py", "*.safetensors*", "*.bin*", "*.onnx", "*.h5",
    "*.msgpack", "[0-9]_*", "golden", "onnx*", "openvino*", "flow.json", "encoder", "run",
    "report.html", "README.md", "LICENSE*", ".gitattributes", ".cache", ".*.new", ".DS_Store",
)  # fmt: skip
"""Names in a model folder of what a new model replaces, its training run among them."""


@dataclass(frozen=True, slots=True)
class Description:
    """The settings of a model folder beyond its backbone."""

    transformer: Path
    # how token vectors become one; None for a bare transformers folder, which does not say
    pooling: str | None
    head: tuple[Path, ...]
    normalize: bool  # whether vectors are scaled to unit length
    max_seq_length: int | None  # the length that texts are truncated to, if stated
    lower_case: bool  # whether texts are lower-cased before the tokenizer sees them
    prompts: Prompts = field(default_factory=Prompts)
    pooling_folder: Path | None = None  # of a pooler that may have stored something

    def pooling_or(self, chosen: str | None, name: object, known: Iterable[str]) -> str:
        """The pooler that was chosen, or the folder's own."""
        pooling = self.pooling if chosen is None else chosen
        if pooling is None:
            raise ModelError(
                f"{name}: this encoder does not define its pooling; choose one, such as --pooling "
                f"mean ({', '.join(known)}); for a released SimCSE checkpoint use 'contrasent "
                f"import'{see('no-model')}"
            )
        check_pooler(pooling)
        return pooling

    def length(self, chosen: Any, limit: int) -> int:
        """The length that texts are truncated to: the one chosen, or the folder's own."""
        cut = min(self.max_seq_length or limit, limit) if chosen is None else chosen
        if isinstance(cut, str | float) or not 3 <= cut <= limit:
            raise OptionError(
                "max_seq_length", cut, f"must be from 3 to {limit} tokens for this encoder"
            )
        return int(cut)  # a number of numpy would give the model another identity


def read_config(transformer: Path) -> dict[str, Any]:
    """The config.json of an encoder, with its values validated."""
    path = transformer / "config.json"
    if (transformer / "adapter_config.json").is_file():
        problem = "contains an adapter of PEFT; merge it into its base (merge_and_unload)"
        raise ModelError(f"{transformer}: {problem} and save that")
    config = read_object(path, needed=True)
    for key, (least, most) in SIZES.items():
        if key in config and not is_whole(config[key], least, most):
            raise bad_value(path, config, key, f"a whole number from {least:,} to {most:,}")
    if not is_whole(config.get("pad_token_id") or 0, 0, 1 << 24):
        raise bad_value(path, config, "pad_token_id", "a token's number")
    epsilon = config.get("layer_norm_eps", 1e-12)
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 <= epsilon < 1:
        raise bad_value(path, config, "layer_norm_eps", "a number from 0 to 1")
    for key in ("model_type", "hidden_act", "activation", "position_embedding_type"):
        if not isinstance(config.get(key, ""), str | None):
            raise bad_value(path, config, key, "a name")
    nested = config.get("matryoshka_dimensions") or []
    if not isinstance(nested, list) or not all(is_whole(size, 1, 1 << 20) for size in nested):
        raise bad_value(path, config, "matryoshka_dimensions", "a list of sizes")
    return config


def is_whole(value: object, least: int, most: int) -> bool:
    """Whether a value is a whole number within bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def bad_value(path: Path, config: dict[str, Any], key: str, right: str) -> ModelError:
    """The error of a value that a config cannot have."""
    shown = repr(config[key])[:60] if key in config else "missing"
    return ModelError(f"{path}: {key} is {shown}; it must be {right}")


def describe(folder: Path) -> Description:
    """Read the description of a model folder."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: model folder not found")
    if not (folder / "modules.json").is_file():
        if not (folder / "config.json").is_file():
            raise ModelError(
                f"{folder}: not a model folder (neither modules.json nor config.json in it)"
            )
        named = read_object(folder / "config.json").get("architectures")
        if isinstance(named, list) and any(str(name).endswith("ForCL") for name in named):
            raise ModelError(
                f"{folder}: a checkpoint of the SimCSE family; convert it with: contrasent import "
                f"{folder} -o MODEL"
            )
        return Description(folder, None, (), False, _length(folder, {}), False)
    prompts = Prompts.read(folder)
    transformer, normalize, head = folder, False, []
    pooling, pooling_folder = None, None
    weights: list[float] | None = None
    for name, path in _modules(folder):
        # Those of other packages compute otherwise, also under the same last name.
        kind = name.rsplit(".", 1)[-1] if name.startswith("sentence_transformers.") else ""
        if kind == "Transformer":
            transformer = path
        elif kind == "WeightedLayerPooling":
            weights = _layer_weights(path)
        elif kind == "Pooling":
            pooling = _pooler(path, weights, prompts)
        elif name.startswith(f"{OWN}."):
            pooling, pooling_folder = _own_pooler(path), path
        elif kind == "Dense":
            head.append(path)
        elif kind == "Normalize":
            normalize = True
        else:
            raise ModelError(
                f"{folder / 'modules.json'}: module {name!r} is not supported (only Transformer, "
                "Pooling, WeightedLayerPooling, Dense and Normalize)"
            )
    stated = _stated(transformer)
    return Description(
        transformer,
        pooling,
        tuple(head),
        normalize,
        _length(transformer, stated),
        bool(stated.get("do_lower_case", False)),
        prompts,
        pooling_folder,
    )


def _stated(transformer: Path) -> dict[str, Any]:
    """The settings of sentence-transformers beside config.json."""
    # Its older versions name the file after the kind of encoder, such as roberta.
    path = min(transformer.glob("sentence_*_config.json"), default=transformer)
    stated = read_object(path)
    for key in DECIDING:
        if (value := stated.get(key)) not in HARMLESS:
            problem = f"{key} {value!r} is not supported; removing it changes the vectors"
            raise ModelError(f"{path}: {problem}")
    return stated


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Type and folder of each module, in order; none is outside the model folder."""
    path = folder / "modules.json"
    listed, modules = read_json(path), []
    for module in listed if isinstance(listed, list) else [None]:
        known = module if isinstance(module, dict) else {}
        kind, place = known.get("type"), known.get("path")
        if not isinstance(kind, str) or not isinstance(place, str):
            raise ModelError(f"{path}: not a list of modules with types and paths")
        inside = PurePath(place)
        if inside.is_absolute() or ".." in inside.parts or "\0" in place:
            raise ModelError(f"{path}: path {place!r} is outside the model folder")
        modules.append((kind, folder / place))
    kinds = [kind.rpartition(".")[2] for kind, _ in modules]
    for number, kind in enumerate(kinds):
        before = kinds[:number]
        late = (kind == "Transformer" and number) or (kind == "Pooling" and "Dense" in before)
        if late or ("Normalize" in before and kind != "Normalize"):
            problem = f"{kind} cannot follow {kinds[number - 1]}"
            order = "only the order Transformer, Pooling, Dense, Normalize is supported"
            raise ModelError(f"{path}: {problem}; {order}")
    return modules


def _length(transformer: Path, stated: dict[str, Any]) -> int | None:
    """The length that texts are truncated to; in the newer schema only the tokenizer has it."""
    length = stated.get("max_seq_length")
    if length is None:
        length = read_object(transformer / "tokenizer_config.json").get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int | float)):
        raise ModelError(f"{transformer}: the longest input, {length!r}, is not a number")
    # Tokenizers without a limit say 10^30.
    return int(length) if length is not None and 0 <= length < 10**9 else None


def _layer_weights(folder: Path) -> list[float]:
    weights = read_arrays(folder / "model.safetensors").get("layer_weights")
    if weights is None or weights.ndim != 1:
        raise ModelError(f"{folder}: contains no layer weights")
    start = read_object(folder / "config.json").get("layer_start", 4)
    if not is_whole(start, 0, 1000):
        raise ModelError(f"{folder / 'config.json'}: layer_start {start!r} is not a layer")
    return [0.0] * start + [float(weight) for weight in weights]


def _pooler(path: Path, weights: list[float] | None, prompts: Prompts) -> str:
    config = read_object(path / "config.json", needed=True)
    if any(prompts.texts.values()) and config.get("include_prompt") is False:
        raise ModelError(
            f"{path / 'config.json'}: pooling without the prompt's tokens is not supported"
        )
    known, older = modes(), "pooling_mode_"
    stated = config.get("pooling_mode", [k for k, v in config.items() if k.startswith(older) and v])
    on = stated if isinstance(stated, list) else [stated]
    called = {name: (mode, name, f"{older}{FLAGS[mode]}") for mode, name in known.items()}
    names = [name for name, calls in called.items() if any(call in on for call in calls)]
    if len(on) != 1 or len(names) != 1:
        raise ModelError(
            f"{path / 'config.json'}: pooling {on} is not supported; use one of {', '.join(known)}"
        )
    if weights is None:
        return names[0]
    name = averaging(weights) if names[0] == "mean" else None
    if name is None:
        raise ModelError(f"{path}: a mean over layers with weights {weights} is not supported")
    return name


def _own_pooler(path: Path) -> str:
    name = read_object(path / "config.json", needed=True).get("pooling")
    if not isinstance(name, str) or name not in POOLERS:
        raise ModelError(f"{path / 'config.json'}: pooling {name!r} is not supported")
    return name


def read_dense(path: Path, read: Callable[[Path], dict[str, Any]]) -> tuple[str, Any, Any]:
    """Activation, weight (out, in) and bias, or None, of a dense layer; ``read`` makes arrays."""
    config = read_object(path / "config.json", needed=True)
    tokens = "token_embeddings" in (config.get(f"module_{end}_name") for end in ("input", "output"))
    if tokens or config.get("use_residual"):
        what = "a layer on token_embeddings" if tokens else "use_residual"
        raise ModelError(f"{path / 'config.json'}: {what} is not supported")
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(
            f"{path / 'config.json'}: activation {name!r} is not one of {', '.join(ACTIVATIONS)}"
        )
    weights = read(path / "model.safetensors")
    bias = config.get("bias", True)
    sizes = (config.get("out_features"), config.get("in_features"))
    shapes = {"linear.weight": sizes, **({"linear.bias": sizes[:1]} if bias else {})}
    # Before anything of that size is allocated.
    if {key: tuple(array.shape) for key, array in weights.items()} != shapes:
        raise ModelError(f"{path}: the weights do not match its config.json")
    return ACTIVATIONS[name], weights["linear.weight"], weights.get("linear.bias")


def read_kept(path: Path, pooler: Pooler, size: int, vocabulary: int) -> dict[str, NDArray[Any]]:
    """What a pooler for these sizes kept in the folder of its module."""
    initial = pooler.initial(size, vocabulary)
    stored = read_arrays(path / "model.safetensors") if initial else {}
    shapes = [{k: (v.shape, v.dtype) for k, v in part.items()} for part in (initial, stored)]
    if shapes[0] != shapes[1]:
        raise ModelError(f"{path}: does not match this model's pooling {pooler.name!r}")
    return stored


def write_description(
    folder: Path,
    parts: Iterable[Part],
    *,
    max_seq_length: int,
    lower_case: bool,
    prompts: Prompts,
    save: Callable[[Path, dict[str, Any]], None],
    **more: Any,
) -> None:
    """Write the settings of a model folder, and its modules above the transformer.

    The schema is the older one of sentence-transformers, which today's and last year's, and the
    common inference servers, all read. ``save`` writes the tensors of a module.
    """
    rows = [{"idx": 0, "name": "0", "path": "", "type": f"{MODULES}.Transformer"}]
    for number, (kind, config, tensors) in enumerate(parts, start=1):
        path = folder / f"{number}_{kind.rpartition('.')[2]}"
        path.mkdir()
        # A folder must hold a file to survive version control and the hub.
        write_object(path / "config.json", config)
        if tensors:
            save(path / "model.safetensors", tensors)
        rows.append({"idx": number, "name": str(number), "path": path.name, "type": kind})
    write_object(folder / "modules.json", rows)
    stated = {"max_seq_length": max_seq_length, "do_lower_case": lower_case}
    write_object(folder / "sentence_bert_config.json", stated)
    more |= {"prompts": dict(prompts.texts), "default_prompt_name": prompts.default}
    write_object(folder / PROMPTS, {**more, "similarity_fn_name": prompts.similarity})


def check_replaceable(folder: Path) -> None:
    """Reject a folder that a new model is to replace if it holds anything but a model."""
    marks = ("modules.json", "flow.json", "run/settings.json")
    parts = PARTS if any((folder / mark).is_file() for mark in marks) else ()
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if others := [name for name in names if not any(fnmatch(name, part) for part in parts)]:
        raise OutputError(
            f"{folder}: contains files that are not part of a model, such as {others[0]!r}; "
            "move them or choose another folder"
        )
