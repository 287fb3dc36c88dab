"""Whether the hub can be reached: one quick question, where its client would ask six times."""

PATIENCE = 5.0
"""Seconds to wait for an answer."""


def hub_is_reachable() -> bool:
    """Ask the hub for anything at all; False where ``HF_HUB_OFFLINE`` forbids to ask."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # of whichever HTTP client the hub's package uses
        return False
    return True
