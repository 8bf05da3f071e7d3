"""sglang.dsa-paged-chunks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, LONG_PROMPT

BUG = KnownBug(
    id="sglang.dsa-paged-chunks",
    title="DeepSeek V3.2 ends in an assertion when the index scores of a prefill are computed in chunks",
    symptom="A large prefill ends the server with 'Expected src_page_table.size(0) == prefill_bs'.",
    symptoms=(DIES, LONG_PROMPT),
    releases=(">=0.5.6,<0.5.6.post1",),
    code=("sglang.srt.layers.attention.nsa.nsa_indexer:Indexer._get_topk_ragged",),
    upstream=Upstream("sgl-project/sglang", pull=14325),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        Is("GPU", "NVIDIA"),
        Not(Is("--disaggregation-mode", "decode")),
        Not(Is("$SGLANG_NSA_FUSE_TOPK", "0", "false", "False")),
        Unseen("whether scores of a prefill fill half of the free memory, and its top-k reads pages"),
    ),
    avoid="Lower --chunked-prefill-size or --mem-fraction-static, so that the scores fit at once.",
)
