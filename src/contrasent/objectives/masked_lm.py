"""Masked language modeling: with a contrastive loss, or alone."""

from contrasent import engine


class MaskedLM(engine.Objective):
    """Masked language modeling (SimCSE: Gao et al., 2021, appendix A, Tables D.2 and E.1).

    SimCSE's auxiliary loss is the combination "simcse+masked_lm", or with simcse_supervised. Of
    15 % of the tokens 80 % become [MASK], 10 % a random token and 10 % stay; special tokens are
    never chosen. The contrast sees the text unmasked (the released code let it see the masked text
    until November 2021, and the published scores are older).

    Args:
        masked_lm_weight: weight of the term (lambda) beside a contrastive loss; 0.1 in Table E.1.
        mask_ratio: share of tokens to mask.
        language_head: head to start from: folder of its checkpoint, "new", or none for the
            encoder's own folder.
    """

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        masked_lm_weight: engine.Weight = 0.1,
        mask_ratio: engine.Share = 0.15,
        language_head: str | None = None,
    ) -> None:
        super().__init__(encoder)
        self.weights = {"masked_lm": masked_lm_weight}
        self.terms["masked_lm"] = engine.MaskedLanguageModeling(
            encoder, mask_ratio=mask_ratio, head=language_head
        )
