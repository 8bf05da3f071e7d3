"""sglang.pd-rejected-prompt, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT

BUG = KnownBug(
    id="sglang.pd-rejected-prompt",
    title="Garbage instead of an error for a prompt that the prefill server alone rejects (P/D disaggregation)",
    symptom="The prefill server sends the KV of one dummy token. The decode server takes the whole prompt for transferred.",
    symptoms=(GARBAGE, LONG_PROMPT),
    releases=(">=0.5.1,<0.5.20",),
    code=("sglang.srt.disaggregation.prefill:SchedulerDisaggregationPrefillMixin.process_batch_result_disagg_prefill",),
    upstream=Upstream("sgl-project/sglang", issue=30233),
    hits=AllOf(
        Is("--disaggregation-mode", "prefill", "decode"),
        Unseen("a prompt that the prefill server rejects and the decode server takes, as one that only the larger pool holds"),
    ),
    avoid="Give both servers one --context-length that both pools hold.",
)
