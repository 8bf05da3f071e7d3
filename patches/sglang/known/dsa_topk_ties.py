"""sglang.dsa-topk-ties, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

_V4, _OWN = Is("architecture", "DeepseekV4ForCausalLM"), Is("--dsa-topk-backend", OFF, "sgl-kernel")

BUG = KnownBug(
    id="sglang.dsa-topk-ties",
    title="Sparse attention misses better keys where many scores are alike (top-k v2 kernel)",
    symptom="Answers to long prompts get worse and vary between runs: above 2048 alike scores, the first to come are kept.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.5.12,<0.5.23",),
    code=(
        "sglang.srt.layers.attention.dsa.dsa_topk_backend:DSATopKBackend.topk_transform",
        "sglang.srt.layers.attention.dsv4.indexer:C4IndexerBackendMixin.forward_c4_indexer",
    ),
    upstream=Upstream("sgl-project/sglang", pull=30645, issue=35257),
    hits=AllOf(
        AnyOf(
            AllOf(_V4, Not(Is("compute capability", 120, 121)), AnyOf(Not(Is("GPU", AMD)), Since("0.5.19"))),
            AllOf(Is("attention", "sparse MLA"), Since("0.5.15"), Not(Is("GPU", AMD))),
        ),
        AnyOf(_OWN, AllOf(_V4, Not(Since("0.5.19")))),
        Not(Is("$SGLANG_OPT_USE_TOPK_V2", "0", "false", "False")),
        Unseen("whether scores of a long prompt are so much alike"),
    ),
    avoid="Set SGLANG_OPT_USE_TOPK_V2=0, which lessens it and is slower; take release 0.5.23.",
)
