"""Other programs' encoding, in an environment of their own (``benchmarks/peers.txt``).

    PEERS/bin/python benchmarks/peer_encoding.py prepare MODEL FOLDER CALIBRATION.json
    PEERS/bin/python benchmarks/peer_encoding.py encode NAME FOLDER TEXTS.json WARM.json [KEEP.npy]

They need versions of transformers that sentence-transformers 6 does not go with; nothing of
contrasent is imported here. The model is exported once, by their own means, with the settings that
their documentation names: int8 with ``avx512_vnni`` for ONNX Runtime, and calibrated for OpenVINO,
on the texts that ours is calibrated on.
"""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "their onnx": ("onnx", "model.onnx"),
    "their openvino": ("openvino", "openvino_model.xml"),
    "their openvino in f32": ("openvino", "openvino_model.xml"),
    "fastembed": ("fastembed", "model.onnx"),
    "their onnx-int8": ("onnx", "model_qint8_avx512_vnni.onnx"),
    "their openvino-int8": ("openvino", "openvino_model_qint8_quantized.xml"),
}
"""The engine and the file of each. Left to itself, OpenVINO computes in bfloat16 if it can."""


def prepare(model: str, folder: Path, calibration: list[str]) -> None:
    """Export a model in every way."""
    from sentence_transformers import (
        SentenceTransformer,
        export_dynamic_quantized_onnx_model,
        export_static_quantized_openvino_model,
    )

    texts = folder / "calibration"
    texts.mkdir()
    (texts / "train.txt").write_text("\n".join(calibration), "utf-8")
    for backend in ("onnx", "openvino"):
        exported = SentenceTransformer(model, backend=backend)
        target = str(folder / backend)
        exported.save_pretrained(target)
        if backend == "onnx":
            export_dynamic_quantized_onnx_model(exported, "avx512_vnni", target)
        else:
            export_static_quantized_openvino_model(
                exported, None, target, str(texts), "default", "train", "text"
            )


def opened(name: str, folder: Path) -> Any:
    """A function that encodes a list of texts."""
    engine, file = NAMES[name]
    if engine == "fastembed":
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        TextEmbedding.add_custom_model(
            model="local/minilm",
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf="local/minilm"),
            dim=384,
            model_file=f"onnx/{file}",
        )
        embedding = TextEmbedding("local/minilm", specific_model_path=str(folder / "onnx"))
        return lambda texts: np.stack(list(embedding.embed(texts)))
    from sentence_transformers import SentenceTransformer

    backend: Any = engine
    options: dict[str, Any] = {"file_name": f"{engine}/{file}"}
    if name.endswith("f32"):
        options["ov_config"] = {"INFERENCE_PRECISION_HINT": "f32"}
    model = SentenceTransformer(str(folder / engine), backend=backend, model_kwargs=options)
    return lambda texts: model.encode(texts, show_progress_bar=False)


def main() -> None:
    """Prepare, or print texts a second."""
    logging.disable(logging.WARNING)
    job, *rest = sys.argv[1:]
    if job == "prepare":
        model, folder, calibration = rest
        prepare(model, Path(folder), json.loads(Path(calibration).read_text("utf-8")))
        return
    name, place, file, warm, *keep = rest
    texts = json.loads(Path(file).read_text("utf-8"))
    encode = opened(name, Path(place))
    encode(json.loads(Path(warm).read_text("utf-8")))
    began = time.perf_counter()
    vectors = encode(texts)
    print(len(texts) / (time.perf_counter() - began))
    if keep:
        np.save(keep[0], np.asarray(vectors, dtype=np.float32), allow_pickle=False)


if __name__ == "__main__":
    main()
