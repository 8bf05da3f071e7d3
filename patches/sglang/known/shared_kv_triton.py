"""sglang.shared-kv-triton, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.shared-kv-triton",
    title="Gemma 3n and IQuest-Coder Loop end the server on triton: layers that reuse KV bring no keys",
    symptom="The first prompt ends in AttributeError: 'NoneType' object has no attribute 'contiguous'.",
    symptoms=(DIES,),
    releases=(">=0.5.1,<0.5.11",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "Gemma3nForConditionalGeneration", "Gemma3nForCausalLM", "IQuestLoopCoderForCausalLM"),
        Is("prefill backend", "triton"),
        Not(Is("deterministic inference", ON)),
    ),
    avoid="Set `--attention-backend fa3` on Ampere, Ada and Hopper.",
)
