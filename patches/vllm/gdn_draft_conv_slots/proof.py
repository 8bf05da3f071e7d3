"""Proof of vllm.gdn-draft-conv-slots: prompts that begin in one step, or beside a decode without drafts; then their decodes.

Real: all of the lab's. Emulated: kernels; that of a prefill's convolution reads slots as if they were dense, unless the engine
tells it a stride. Spared: one prompt at a time, prompts beside verified drafts, and decodes.
"""

from attnfix.patches.lab.vllm.gated_delta import case, step, verify
from attnfix.patches.lab.vllm.gdn_layer import GatedDeltaLayer

from . import wrap

_BOTH = step(a=verify(), b=verify())


class Proof(GatedDeltaLayer):
    needs = "GDNAttentionMetadataBuilder.build: num_draft_tokens"
    absent = "Gated DeltaNet's kernels are told how far apart slots lie"
    bug = (
        case(step(a=12, b=9), _BOTH, _BOTH, drafts=1),
        case(step(a=5, b=7, c=3), step(a=verify(), b=verify(), c=verify()), drafts=3),
        case(step(a=6), step(a=1, b=11), _BOTH, drafts=2),
        case(step(a=6, b=4), step(a=3, b=8), _BOTH, drafts=2),
    )
    spared = (
        case(step(a=12), step(a=verify()), step(a=verify(), b=9), _BOTH, drafts=2),
        case(step(a=8), step(b=9), step(a=1, b=1), _BOTH, drafts=1),
    )
    broken = {
        "the correction does nothing": (wrap.dense, lambda real, slots: slots),
        "slots are those of other requests": (wrap.dense, lambda real, slots: real(slots).roll(1)),
        "all slots are the first request's": (wrap.dense, lambda real, slots: real(slots[:1].expand(len(slots)))),
    }
