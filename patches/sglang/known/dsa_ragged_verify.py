"""sglang.dsa-ragged-verify, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

_BACKEND = "sglang.srt.layers.attention.nsa_backend:NativeSparseAttnBackend"

BUG = KnownBug(
    id="sglang.dsa-ragged-verify",
    title="DeepSeek V3.2 dies at its first verification with flashmla_sparse prefill and FP8 KV (Hopper)",
    symptom='The server dies with "RAGGED topk_transform requires topk_indices_offset".',
    symptoms=(DIES, SPECULATION),
    releases=(">=0.5.10,<0.5.11",),
    code=(f"{_BACKEND}.get_topk_transform_method",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Is("compute capability", 90),
        Is("speculative decoding", ON),
        Is("--kv-cache-dtype", "fp8_e4m3"),
        Is("--nsa-prefill-backend", "flashmla_sparse"),
        Not(Is("--disaggregation-mode", "prefill")),
        Not(Is("$SGLANG_NSA_FUSE_TOPK", "0", "false", "False")),
    ),
    avoid="Set `--nsa-prefill-backend flashmla_auto`, or leave it out.",
    harm=CRASH,
)
