"""sglang.gemma3n-triton, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.gemma3n-triton",
    title="Gemma 3n dies at its first prefill on Triton",
    symptom="Layers that share the keys of an earlier layer bring none. Triton's prefill calls `contiguous` on None.",
    symptoms=(DIES,),
    releases=(">=0.5.1,<0.5.11",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
        Is("prefill backend", "triton"),
        Not(Is("deterministic inference", ON)),
    ),
    avoid="Set `--attention-backend fa3` on Hopper, else `flashinfer`.",
    harm=CRASH,
)
