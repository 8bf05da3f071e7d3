"""sglang.fa3-draft-page-ends, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Given, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

_BACKEND = "sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend"

BUG = KnownBug(
    id="sglang.fa3-draft-page-ends",
    title="EAGLE accepts fewer drafts with draft trees and pages of several tokens (fa3)",
    symptom="Where drafts reach past the end of a page, the table of pages lacks the next one, and other keys are read.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.6,<0.5.7",),
    code=(f"{_BACKEND}.init_forward_metadata", f"{_BACKEND}.init_forward_metadata_replay_cuda_graph"),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("draft decode backend", "fa3"),
        Above("speculative topk", 1),
        Above("speculative steps", 2),
        Given("--page-size"),
        Not(Is("--page-size", "1")),
    ),
    avoid="Set --page-size 1, or --speculative-eagle-topk 1.",
)
