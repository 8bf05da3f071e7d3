"""vllm.mla-cross-layers, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.mla-cross-layers",
    title="Garbage from MLA models with KV offloading: decode reads KV of other layers",
    symptom="Answers are garbage from the first token on. The kernel takes blocks for packed that lie layer by layer.",
    symptoms=(GARBAGE,),
    releases=(">=0.12.0,<0.18.0",),
    code=(
        "vllm.v1.attention.backends.mla.common:MLACommonBackend.get_kv_cache_stride_order",
        "vllm.model_executor.layers.attention.mla_attention:MLACommonBackend.get_kv_cache_stride_order",
    ),
    upstream=Upstream("vllm-project/vllm", issue=37032, pull=37090),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("attention backend", "TRITON_MLA", "CUTLASS_MLA"),
        AnyOf(
            Is("--kv-transfer-config.kv_connector", "OffloadingConnector"),
            AllOf(Since("0.14.0"), Given("--kv-offloading-size"), Not(Is("--kv-offloading-backend", "lmcache"))),
        ),
    ),
    avoid="Nothing within the release avoids it; serve such a model without offloading.",
)
