"""What decides sglang.draft-kv-context-limit alone."""

from __future__ import annotations

from packaging.version import Version

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers

#: Later, trtllm_mla drafts without the lists of FlashInfer's latent attention, whose class it derives from
_LISTS_UP_TO = Version("0.5.12.post1")


def _lists_of_trtllm(it: Deployment) -> Fact:
    if it.release is None:
        return unknown("whether trtllm_mla lists the slots of drafts in this release was not read")
    return known(ON if it.release <= _LISTS_UP_TO else OFF, f"sglang {it.release}")


FACTS: Makers = {"lists of slots on trtllm_mla": _lists_of_trtllm}
