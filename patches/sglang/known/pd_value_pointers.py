"""sglang.pd-value-pointers, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="sglang.pd-value-pointers",
    title="P/D disaggregation with a drafter on the decode side alone sends V of each layer to the next one",
    symptom="All answers are garbage once the decode server has a drafter and the prefill server has none.",
    symptoms=(GARBAGE,),
    releases=(">=0.5.3,<0.5.8",),
    code=("sglang.srt.disaggregation.common.conn:CommonKVManager.get_mha_kv_ptrs_with_pp",),
    upstream=Upstream("sgl-project/sglang", pull=17212),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("--disaggregation-mode", "decode"),
        Given("--speculative-algorithm"),
        Not(Is("--speculative-algorithm", "NGRAM")),
        Unseen("the prefill server's drafter"),
    ),
    avoid="Start both sides with the same drafter, or both without one.",
    ran=("0.5.3", "0.5.7"),
)
