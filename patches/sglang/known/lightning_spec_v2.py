"""sglang.lightning-spec-v2, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="sglang.lightning-spec-v2",
    title="Garbage from Ling and Ring 2.5 with MTP: recurrent states stay at the prompt's end",
    symptom="Lightning layers never get the states of accepted drafts, so that the text turns into repetition.",
    symptoms=(GARBAGE, SPECULATION),
    releases=(">=0.5.10,<0.5.13",),
    code=("sglang.srt.speculative.eagle_worker_v2:EAGLEWorkerV2.verify",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(Is("architecture", "BailingMoeV2_5ForCausalLM"), Is("spec v2", ON), Not(Is("--disaggregation-mode", "prefill"))),
    avoid="Set `SGLANG_ENABLE_SPEC_V2=0`.",
)
