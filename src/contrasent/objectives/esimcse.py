"""ESimCSE: positives with repeated words, and a queue of negatives from earlier batches."""

from typing import Annotated, Any

from contrasent import engine
from contrasent.engine.momentum_queue import Column, Init, Start
from contrasent.objectives.simcse import SimCSE
from contrasent.text.views import Rule


class ESimCSE(engine.ContrastObjective):
    """ESimCSE (Wu et al., 2022, section 3, equations 3 to 6; Tables 4, 5, 9 and 10).

    The second view repeats some sub-words, so that length does not identify a pair; a queue of
    vectors by a momentum encoder adds negatives. Each can be used alone, by ``view="dropout"`` or
    ``queue_size=0``.

    Paper and code: the defaults follow the released code, which gave the published scores: its
    repetition rule (see ``RepeatTokens``), the original sentence in the queue, dropout off there,
    no warm-up. Two of its bugs are not followed: the momentum encoder starts as a copy (code:
    random, see ``momentum_init``), and hard negatives and further terms stay in the loss with the
    queue (code: dropped silently). The queue has the rows of all processes (code: its own).

    Args:
        view: "repeat_tokens", "repeat_words", or Table 5's "insert_stop_words", "insert_mask" and
            "insert_prediction"; "dropout" for none.
        rate: dup_rate, the greatest share to repeat; 0.32 for BERT, 0.30 and 0.28 for RoBERTa base
            and large in the code.
        rule: how ``rate`` counts: "code", "paper" (equation 3) or "exact".
        filler: folder of the masked language model of "insert_prediction".
        resample_views: draw views again in each "epoch", or once, as in the code ("static").
        queue_size: rows of the queue; 2.5 times the batch in the paper, 0 for none.
        momentum: lambda of equation 5.
        momentum_init: "copy", or "random" for the released code's accident.
        queue_column: "first" enqueues the sentence (code), "second" its view (the paper's h+).
        queue_start: "grow" uses the queue from the second step (code), "full" once it is full.
    """

    published = SimCSE.published
    """The released script."""
    checks = (engine.check_view,)

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        view: Annotated[str, engine.Neutral("dropout")] = "repeat_tokens",
        rate: Annotated[float | None, engine.Range(least=0, most=1)] = None,
        rule: Rule | None = None,
        filler: engine.MaskedModelFolder = None,
        resample_views: engine.ResampleViews = "epoch",
        queue_size: engine.Size = 160,
        momentum: Annotated[float, engine.Range(least=0, below=1)] = 0.995,
        momentum_init: Init = "copy",
        queue_column: Column = "first",
        queue_start: Start = "grow",
        **given: Any,
    ) -> None:
        super().__init__(encoder, **given)
        self.views = engine.make_views(
            encoder, {"view": view, "rate": rate, "rule": rule, "filler": filler}
        )
        self.resample_views = resample_views == "epoch"
        if queue_size:
            self.queue = engine.MomentumQueue(
                encoder,
                size=queue_size,
                momentum=momentum,
                init=momentum_init,
                column=queue_column,
                start=queue_start,
            )
