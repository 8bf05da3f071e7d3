"""sglang.dcp-prefill-graph, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, PARALLEL

BUG = KnownBug(
    id="sglang.dcp-prefill-graph",
    title="MLA models with --dcp-size end at start where a CUDA graph of prefill is asked for",
    symptom="The capture ends in AttributeError: 'NoneType' object has no attribute 'dcp_local_prefix_kv_indices'.",
    symptoms=(DIES, GRAPHS, PARALLEL),
    releases=(">=0.5.15,<=0.5.23",),
    code=(
        "sglang.srt.models.deepseek_common.attention_forward_methods.forward_mla:DeepseekMLAForwardMixin.forward_absorb_prepare",
    ),
    upstream=Upstream("sgl-project/sglang", pull=38943),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA"),
        Above("--dcp-size", 1),
        Not(Is("prefill backend", "aiter")),
        AnyOf(
            Is("--cuda-graph-backend-prefill", "tc_piecewise"),
            AllOf(Is("--cuda-graph-backend-prefill", "breakable"), Since("0.5.17")),
            AllOf(Given("--cuda-graph-config"), Unseen("whether it names a backend of prefill")),
        ),
    ),
    avoid="Leave --cuda-graph-backend-prefill out, or set it to disabled.",
)
