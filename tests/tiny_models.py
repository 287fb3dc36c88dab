"""Tiny encoders with random weights, and sentences of our own to train them on."""

import json
import re
from itertools import product

KINDS = ("bert", "roberta", "distilbert", "mpnet", "electra", "modernbert")
ROBERTA = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")  # pad is 1, positions too

T5 = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2}
ONE = {"num_key_value_heads": 1}  # a head of keys for two of queries
GEMMA = {**ONE, "head_dim": 16, "sliding_window": 8}
DEBERTA = {  # as in the released models; those of version 3 have no convolution
    "relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm",
    "conv_kernel_size": 3, "conv_act": "gelu",
}  # fmt: skip
OTHERS = {
    "xlm-roberta": ("XLMRoberta", {}),
    "camembert": ("Camembert", {}),
    "albert": ("Albert", {"embedding_size": 24}),
    "eurobert": ("EuroBert", {}),
    "deberta": ("Deberta", {}),
    "deberta-v2": ("DebertaV2", DEBERTA),
    "xlnet": ("XLNet", {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 48}),
    "funnel": (
        "Funnel", {"d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 48, "block_sizes": [1, 1]},
    ),
    "t5": ("T5", T5),
    "mt5": ("MT5", T5),
    "nomic_bert": ("NomicBert", {}),
    "jina_embeddings_v3": ("JinaEmbeddingsV3", {}),
    "ernie": ("Ernie", {}),
    "convbert": ("ConvBert", {"embedding_size": 32}),
    "fnet": ("FNet", {}),
    "mobilebert": ("MobileBert", {"embedding_size": 16, "intra_bottleneck_size": 16}),
    "longformer": ("Longformer", {"attention_window": 8}),
    "roformer": ("RoFormer", {"embedding_size": 32}),
    "rembert": ("RemBert", {"input_embedding_size": 24}),
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 48, "n_positions": 64}),
    "opt": ("OPT", {"ffn_dim": 48, "word_embed_proj_dim": 24}),
    "gpt_neox": ("GPTNeoX", {}),
    "llama": ("Llama", ONE),
    "mistral": ("Mistral", ONE),
    "qwen2": ("Qwen2", ONE),
    "qwen3": ("Qwen3", {**ONE, "head_dim": 16}),
    "phi3": ("Phi3", ONE),
    "olmo2": ("Olmo2", ONE),
    "gemma2": ("Gemma2", GEMMA),
    "gemma3_text": ("Gemma3Text", GEMMA),
    "modernbert-decoder": ("ModernBertDecoder", {}),
}  # fmt: skip
"""Further architectures: their classes in transformers, and sizes beyond the common ones."""
OWN_SIZES = ("xlnet", "funnel", "t5", "mt5", "gpt2")

WHO = ("the gardener", "an old sailor", "my neighbor", "a young clerk", "the night nurse")
DID = ("mended", "painted", "sold", "borrowed", "forgot", "carried", "measured", "hid")
WHAT = ("a wooden ladder", "the copper kettle", "two blue lamps", "his violin", "a torn map")
WHEN = ("", " before dawn", " while the rain kept falling on the roof", " last week, she says")


def made_sentences():
    """800 different sentences of 5 to 15 words, none of them like its neighbors in length."""
    parts = list(product(WHEN, DID, WHO, WHAT))
    # A step that has no divisor in common with their number visits each once.
    picked = [parts[i * 331 % len(parts)] for i in range(len(parts))]
    return [f"{who.capitalize()} {did} {what}{when}." for when, did, who, what in picked]


def write_tokenizer(kind, folder, texts=None):
    """A tokenizer for our sentences, WordPiece or byte-level BPE; returns its size."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    word_piece = kind not in ("roberta", "modernbert")
    if kind in ROBERTA:
        marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        named = dict(zip(("cls", "pad", "sep", "unk", "mask"), marks, strict=True))
    else:
        marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        named = dict(zip(("pad", "unk", "cls", "sep", "mask"), marks, strict=True))
    sentences = texts or made_sentences()
    if word_piece:
        words = word_pieces(sentences, marks)
        backend = tokenizers.Tokenizer(models.WordPiece(words, unk_token=named["unk"]))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
        backend.add_special_tokens(marks)
    else:
        backend = tokenizers.Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=380,
            special_tokens=marks,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(sentences, trainer)
    cls, sep = named["cls"], named["sep"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B {sep}",
        special_tokens=[(t, backend.token_to_id(t)) for t in (cls, sep)],
    )
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    config = {f"{name}_token": text for name, text in named.items()}
    config |= {"bos_token": None, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return backend.get_vocab_size()


def word_pieces(texts, marks):
    """A vocabulary of every second word, and pieces for the others.

    (The library's trainer of word pieces gives another one each time.)
    """
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    letters = sorted({letter for word in words for letter in word})
    pieces = [*letters, *(f"##{x}" for x in letters), "##er", "##ed", "##ing", "##our", *words[::2]]
    unique = dict.fromkeys([*marks, *pieces])
    return {text: i for i, text in enumerate(unique)}


def write_backbone(kind, folder, vocabulary, **changes):
    """Random weights of a kind, wider spread than a fresh model's, so that layers matter."""
    import torch
    import transformers

    names = {
        "bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert", "mpnet": "MPNet",
        "electra": "Electra", "modernbert": "ModernBert",
    }  # fmt: skip
    names |= {other: name for other, (name, _) in OTHERS.items()}
    sizes = {
        "vocab_size": vocabulary, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64,
        "pad_token_id": 1 if kind in ROBERTA else 0,
    }  # fmt: skip
    if kind in ROBERTA:
        sizes |= {"max_position_embeddings": 66, "bos_token_id": 0, "eos_token_id": 2}
    if kind == "distilbert":
        sizes = {
            "vocab_size": vocabulary, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 2,
            "max_position_embeddings": 64, "pad_token_id": 0,
        }  # fmt: skip
    if kind == "electra":
        sizes["embedding_size"] = 24
    if kind == "modernbert":
        sizes |= {"global_attn_every_n_layers": 2, "local_attention": 8}
        sizes |= {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    if kind in OTHERS:
        sizes = {"vocab_size": vocabulary, "pad_token_id": 0} if kind in OWN_SIZES else sizes
        sizes |= {"bos_token_id": 2, "eos_token_id": 3} | OTHERS[kind][1]
    config = getattr(transformers, f"{names[kind]}Config")(**(sizes | changes))
    model = getattr(transformers, f"{names[kind]}Model")(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.normal_(std=0.15)
            elif name.endswith("bias"):
                weight.normal_(std=0.05)
    model.save_pretrained(folder)
    return model


def collapse_head(encoder, layer, head, texts):
    """Let a head of a BERT look at the first token alone: its keys tell that from all others."""
    import torch

    part = encoder.backbone.encoder.layer[layer].attention.self
    size = part.attention_head_size
    rows = slice(head * size, (head + 1) * size)
    states = [encoder.hidden(encoder.tokenizer([t])[0], all_layers=True)[0][layer] for t in texts]
    first = torch.cat([state[:, 0] for state in states]).mean(0)
    rest = torch.cat([state[0, 1:] for state in states]).mean(0)
    with torch.no_grad():
        part.query.weight[rows] = 0
        part.query.bias[rows] = 1
        part.key.weight[rows] = 100 * (first - rest)
        part.key.bias[rows] = 0
