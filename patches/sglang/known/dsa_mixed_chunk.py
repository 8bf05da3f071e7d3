"""sglang.dsa-mixed-chunk, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

_BACKENDS = "--dsa-prefill-backend", "--nsa-prefill-backend"
_ROOM = "sglang.srt.layers.attention"

BUG = KnownBug(
    id="sglang.dsa-mixed-chunk",
    title="DeepSeek V3.2 and GLM-5 crash when a batch mixes prefill and decode (flashmla_sparse, FP8 KV)",
    symptom='A kernel for bfloat16 gets the FP8 KV cache: the server ends in "kv must have dtype kBFloat16".',
    symptoms=(DIES, SHARED_BATCH),
    releases=(">=0.5.11,<=0.5.23",),
    code=(
        f"{_ROOM}.nsa_backend:NativeSparseAttnBackend.get_topk_transform_method",
        f"{_ROOM}.dsa_backend:DeepseekSparseAttnBackend.get_topk_transform_method",
    ),
    upstream=Upstream("sgl-project/sglang", pull=39566),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Given("--enable-mixed-chunk"),
        Is("speculative decoding", OFF),
        AnyOf(
            Is("--kv-cache-dtype", "fp8_e4m3"), AllOf(Is("compute capability", 100, 103), Is("--kv-cache-dtype", "off", "auto"))
        ),
        AnyOf(*(Is(name, "flashmla_sparse", "triton_sparse_mla") for name in _BACKENDS)),
        Not(Is("--disaggregation-mode", "prefill", "decode")),
    ),
    avoid="Leave `--enable-mixed-chunk` out, or set the prefill backend to `flashmla_kv`.",
    harm=CRASH,
)
