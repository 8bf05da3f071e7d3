"""sglang.rocm-dsa-chunks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, LONG_PROMPT

BUG = KnownBug(
    id="sglang.rocm-dsa-chunks",
    title="DeepSeek V3.2 on AMD GPUs ends when the index scores of a prefill are computed in chunks",
    symptom="A long prefill ends the server with an error about `logits_chunk` or about the argument of `fp8_mqa_logits`.",
    symptoms=(DIES, LONG_PROMPT),
    releases=(">=0.5.8,<0.5.9",),
    code=("sglang.srt.layers.attention.nsa.nsa_indexer:Indexer._get_topk_ragged",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("GPU", AMD),
        Is("attention", "sparse MLA"),
        Unseen("prefills whose scores fill half of the free memory"),
    ),
    avoid="Lower --chunked-prefill-size or --mem-fraction-static, so that the scores fit at once.",
)
