"""sglang.shared-kv-ragged, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

#: In these graphs prefill reads pages, not the tokens at hand
_PIECEWISE = AnyOf(
    AllOf(Since("0.5.10"), Not(Since("0.5.15")), Not(Given("--disable-piecewise-cuda-graph"))),
    Is("--cuda-graph-backend-prefill", "tc_piecewise"),
)

BUG = KnownBug(
    id="sglang.shared-kv-ragged",
    title="Garbage on FlashInfer from layers that reuse the KV of others: prefill reads the pool from its start",
    symptom="Answers of IQuest-Coder Loop are garbage: its later loops read keys of other requests in prefill.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.8,<=0.5.23",),
    code=("sglang.srt.layers.attention.flashinfer_backend:FlashInferAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=16574, issue=36690),
    hits=AllOf(
        Is("architecture", "IQuestLoopCoderForCausalLM", "Gemma3nForCausalLM"),
        Is("prefill backend", "flashinfer"),
        Not(Is("deterministic inference", ON)),
        Not(Given("$SGLANG_FLASHINFER_USE_PAGED")),
        AnyOf(Not(_PIECEWISE), Unseen("whether a prefill runs outside piecewise CUDA graphs")),
    ),
    avoid="Set `--attention-backend fa3` on Ampere, Ada and Hopper, or from 0.5.11 on SGLANG_FLASHINFER_USE_PAGED=1.",
)
