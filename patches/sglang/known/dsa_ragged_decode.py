"""sglang.dsa-ragged-decode, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.dsa-ragged-decode",
    title="DeepSeek V3.2 and GLM-5 do not start with flashmla_sparse prefill and an FP8 KV cache",
    symptom='Graph capture ends in "topk_indices_offset must be a CUDA tensor".',
    symptoms=(DIES,),
    releases=(">=0.5.9,<0.5.10",),
    code=("sglang.srt.layers.attention.nsa_backend:NativeSparseAttnBackend.get_topk_transform_method",),
    upstream=Upstream("sgl-project/sglang", pull=20606),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        AnyOf(
            Is("--kv-cache-dtype", "fp8_e4m3"), AllOf(Is("compute capability", 100, 103), Is("--kv-cache-dtype", "off", "auto"))
        ),
        Is("--nsa-prefill-backend", "flashmla_sparse"),
        Not(Is("--disaggregation-mode", "prefill")),
        Not(Is("$SGLANG_NSA_FUSE_TOPK", "0", "false", "False")),
    ),
    avoid="Set `--nsa-prefill-backend flashmla_auto`, or leave it out.",
    harm=CRASH,
)
