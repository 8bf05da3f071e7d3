"""sglang.mha-draft-extend-routing, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_MODULE = "sglang.srt.layers.attention.trtllm_mha_backend"
_BACKEND = f"{_MODULE}:TRTLLMHAAttnBackend"

FIX = Fix(
    id="sglang.mha-draft-extend-routing",
    title="Crash with spec v2 on TRT-LLM MHA (development images)",
    symptom=(
        "With --attention-backend trtllm_mha and spec v2 (EAGLE, NEXTN), the server dies with `CUDA error: an illegal memory "
        "access was encountered`. Development images of May 2026 alone; no release."
    ),
    symptoms=(DIES, SPECULATION),
    cause=(
        "The metadata of a draft extend is made for the context kernel. The decode kernel takes its number of requests from "
        "the query's rows; where DP attention padded those after planning, it reads past `seq_lens` and the page table. (So "
        "says the code; upstream's threads name no faulty read.)"
    ),
    correction="DRAFT_EXTEND_V2 goes to the context kernel, which takes the rows of each request from its metadata.",
    upstream=Upstream("sgl-project/sglang", pull=24856, issue=24863),
    hardware="Blackwell (--attention-backend trtllm_mha)",
    default=True,
    default_reason="a crash; reverted upstream in the same way",
    targets=(Target(wrap.forward_extend, needed=wrap.is_misrouted, paths=(f"{_BACKEND}.forward_extend",)),),
    # The whole class: the routing, the metadata it needs, and every helper that is handed the batch. Then fields of the
    # metadata, what the module calls ForwardMode, the modes, how a variable is read
    witnesses=(
        _BACKEND,
        f"{_MODULE}:TRTLLMMHAMetadata",
        f"{_MODULE}:ForwardMode",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode",
        "sglang.srt.environ:EnvField",
    ),
    remove_when="no image built from sglang's main of 7 to 12 May 2026 is served",
    cost=(
        "One shallow copy of the forward batch per layer of a draft extend. The context kernel is the slower one: upstream "
        "measured 530 tok/s against 555 with the decode kernel at batch 1 (Qwen3.5-NVFP4, four B200)."
    ),
    expect=(
        "On one replica with spec v2 and DP attention, send requests in uneven numbers to its ranks: stock, a rank dies of an "
        "illegal memory access; fixed, it does not. Outputs stay what they are, at a few percent fewer tokens per second."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Is("spec v2", ON),
        Is("draft extend backend", "trtllm_mha"),
    ),
)
