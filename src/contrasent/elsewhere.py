"""What other libraries call our settings, options and methods: for hints, and the settings page."""

import re

SAME = (
    "gradient_accumulation_steps num_train_epochs max_steps learning_rate weight_decay "
    "max_grad_norm eval_steps save_steps seed"
)
"""Settings that transformers' ``TrainingArguments`` and SimCSE's ``train.py`` call the same."""

SETTINGS = {
    **{name: (f"`{name}`", f"`{name}`") for name in SAME.split()},
    "batch_size": ("`per_device_train_batch_size`", "`per_device_train_batch_size`"),
    "gradient_accumulation_steps": (
        "`gradient_accumulation_steps`, which multiplies the batch and does not divide it",
        "`gradient_accumulation_steps`, likewise",
    ),
    "max_seq_length": ("`SentenceTransformer.max_seq_length`", "`max_seq_length`"),
    "warmup_ratio": (
        "`warmup_ratio`; from transformers 5 `warmup_steps` below 1",
        "`warmup_steps`",
    ),
    "dropout": ("`hidden_dropout_prob` of a model's config", ""),
    "attention_dropout": ("`attention_probs_dropout_prob` of a model's config", ""),
    "pooling": ("`Pooling(pooling_mode=)`", "`pooler_type`"),
    "lora": ("`LoraConfig(r=)` of PEFT", ""),
    "head": ("module `Dense`", "kept without `mlp_only_train`"),
    "normalize": ("module `Normalize`", ""),
    "hard_negatives": ("`mine_hard_negatives(num_negatives=, relative_margin=0.05)`", ""),
    "query_prompt": ("`prompts`", ""),
    "document_prompt": ("`prompts`", ""),
    "precision": ("`bf16`, `fp16`", "`fp16`"),
    "mini_batch_size": ("`CachedMultipleNegativesRankingLoss(mini_batch_size=)`", ""),
    "compile": ("`torch_compile`", ""),
    "weights": ("`multi_dataset_batch_sampler`", ""),
    "early_stopping_patience": ("`EarlyStoppingCallback(early_stopping_patience=)`", ""),
    "eval_size": ("`Dataset.train_test_split(test_size=)`", ""),
    "temperature": ("`scale` of a loss, which is its inverse", "`temp`"),
    "gist.temperature": ("`GISTEmbedLoss(temperature=)`", ""),
    "similarity": ("`similarity_fct` of a loss", ""),
    "projector": ("", "`mlp_only_train`"),
    "symmetric": ("`MultipleNegativesSymmetricRankingLoss`", ""),
    "duplicates": ("`batch_sampler=NO_DUPLICATES`, which parts them", ""),
    "simcse_supervised.alpha": ("", "`hard_negative_weight`, its logarithm"),
    "masked_lm_weight": ("", "`mlm_weight` with `do_mlm`"),
    "masked_lm.mask_ratio": ("", "`mlm_probability`"),
    "gist.guide": ("`GISTEmbedLoss(guide=)`", ""),
    "margin": ("`GISTEmbedLoss(margin=)`", ""),
    "dimensions": ("`MatryoshkaLoss(matryoshka_dims=)`", ""),
    "ranking_temperature": ("`DistillKLDivLoss(student_temperature=)`", ""),
    "guide_temperature": ("`DistillKLDivLoss(teacher_temperature=)`", ""),
}
"""What a setting is called in sentence-transformers or transformers, and in SimCSE's ``train.py``;
behind the name of a method and a dot, a parameter of that method alone."""

SHORT = {
    "batch": "batch_size", "clip": "max_grad_norm", "epochs": "num_train_epochs",
    "lr": "learning_rate", "max_length": "max_seq_length", "max_tokens": "max_seq_length",
    "normalize_embeddings": "normalize", "num_epochs": "num_train_epochs",
    "patience": "early_stopping_patience", "pooler": "pooling", "pooling_mode": "pooling",
    "steps": "max_steps", "train_batch_size": "batch_size", "warmup": "warmup_ratio",
}  # fmt: skip
"""Other names that people give settings."""

ABSENT = {
    "bf16": "use precision=bf16",
    "dataloader_num_workers": "is not needed: the corpus is tokenized once",
    "eval_strategy": "use eval_steps, and --evaluate for the data",
    "evaluation_strategy": "use eval_steps, and --evaluate for the data",
    "fp16": "use precision=fp16",
    "gradient_checkpointing": "use mini_batch_size, which saves the same memory",
    "hard_negative_weight": "use alpha, its exponential",
    "load_best_model_at_end": "use --keep trained; the default keeps what is proven better",
    "logging_steps": "is not needed: run/log.jsonl has the first steps and every tenth",
    "lr_scheduler_type": "is always linear: the rate rises over warmup_ratio, then falls to 0",
    "metric_for_best_model": "use --evaluate, whose score selects the model",
    "mlp_only_train": "is the default: the projector is dropped after training",
    "optim": "is always AdamW",
    "report_to": "use --tensorboard",
    "save_total_limit": "is not needed: only the newest checkpoint is stored",
    "scale": "use temperature, its inverse",
    "warmup_steps": "use warmup_ratio, a share of the steps",
}
"""What to do instead of a setting of other libraries."""

OPTIONS = {
    "delete": "--remove", "do_eval": "--evaluate", "filter": "--where", "loss": "--objective",
    "model": "--base", "model_name_or_path": "--base", "output_dir": "--output",
    "overwrite_output_dir": "--overwrite", "recipe": "--config", "report_to": "--tensorboard",
    "resume_from_checkpoint": "--resume", "top_k": "-k", "update": "--upsert",
}  # fmt: skip
"""Options of commands by the names that other programs give them."""

OBJECTIVES = {
    "AnglELoss": "angle",
    "CachedGISTEmbedLoss": "gist with --set mini_batch_size=64",
    "CachedMultipleNegativesRankingLoss": "simcse_supervised with --set mini_batch_size=64",
    "CoSENTLoss": "cosent",
    "CosineSimilarityLoss": "cosine_regression",
    "DistillKLDivLoss": "ranking_distillation",
    "GISTEmbedLoss": "gist",
    "MatryoshkaLoss": "matryoshka, joined to another by +",
    "MultipleNegativesRankingLoss": "simcse_supervised",
    "MultipleNegativesSymmetricRankingLoss": "simcse_supervised with --set symmetric=true",
}
"""Methods by the names of sentence-transformers' losses."""

RENAMED = SHORT | {
    theirs: name.rpartition(".")[2]
    for name, columns in reversed(SETTINGS.items())
    for theirs in re.findall(r"`(\w+)`", " ".join(columns))
    if theirs != name
}
"""Settings here by the names of others."""


def setting_hint(name: str) -> str:
    """What a setting of another library is here, for a message; "" if there is nothing to say."""
    if name in ABSENT:
        return ABSENT[name]
    return f"is called {RENAMED[name]!r} here" if name in RENAMED else ""
