"""What decides sglang.mla-draft-lengths alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_LAUNCH, Deployment, Makers

_DRAFTER = "speculative-draft-model-path"


def _latent_drafter(it: Deployment) -> Fact:
    """Whether the drafter has latent attention: a checkpoint's own layer has what its model has."""
    if it.launch is None:
        return unknown(NO_LAUNCH)
    if it.absent(_DRAFTER):
        return known(ON, f"no --{_DRAFTER}: the checkpoint's own layer drafts")
    drafter, model = it.option(_DRAFTER), it.option("model-path")
    if drafter.values and drafter.values == model.values:
        return known(ON, f"--{_DRAFTER} is the model itself")
    return unknown(f"whether the drafter of --{_DRAFTER} has latent attention was not read")


FACTS: Makers = {"latent attention of the drafter": _latent_drafter}
