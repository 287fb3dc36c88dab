"""Models that parameters name, checked before any weights are loaded. No torch here."""

from pathlib import Path
from typing import Any

from contrasent.errors import ModelError, OptionError


def check_masked_model(option: str, name: str | None, base: Path | None) -> Path:
    """Refuse a masked language model that is missing or reads other ids than the encoder."""
    from contrasent.model.pretrained import resolve
    from contrasent.text.tokens import Tokenizer

    if not name:
        raise OptionError(
            option,
            "",
            "needs a masked language model with the encoder's vocabulary, by folder or name@commit "
            "(the paper takes distilbert-base-uncased for bert-base-uncased)",
        )
    folder = resolve(name)
    if base is not None:
        from contrasent.model.folder import describe

        own = Tokenizer.load(describe(base).transformer, max_tokens=16)
        check_vocabularies(Tokenizer.load(folder, max_tokens=16), own, name)
    return folder


def check_guide(option: str, name: str | None) -> Path:
    """Refuse a guide that is missing, or does not say how it pools."""
    from contrasent.model.folder import describe
    from contrasent.model.pretrained import resolve

    if not name:
        raise OptionError(
            option, "", "needs a sentence encoder to learn from, by folder or name@commit"
        )
    folder = resolve(name)
    if describe(folder).pooler is None:
        raise ModelError(f"{name}: a bare encoder, which does not say how it pools, is no guide")
    return folder


def check_vocabularies(generator: Any, encoder: Any, name: str) -> None:
    """Refuse two tokenizers that give different ids to the same text."""
    mine, own = (t.backend.get_vocab(with_added_tokens=True) for t in (generator, encoder))
    if mine != own:
        differing = next(t for t in sorted(own.keys() | mine.keys()) if own.get(t) != mine.get(t))
        raise ModelError(
            f"{name}: its vocabulary ({len(mine)} entries) is not the encoder's ({len(own)}; they "
            f"differ in {differing!r}), so its predictions would be other words; choose a masked "
            "language model of the encoder's family"
        )
