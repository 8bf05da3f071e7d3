"""vllm.dummy-draft-kv, as data."""

from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.signs import CACHED_PREFIX, SPECULATION

from . import wrap

_GPU = "vllm.v1.worker.gpu"
_SPEC = f"{_GPU}.spec_decode"
_AUTO = f"{_SPEC}.autoregressive.speculator"
_EAGLE = f"{_SPEC}.eagle.speculator"
_MULTI = f"{_SPEC}.multi_module_mtp.speculator"
_TABLES = f"{_GPU}.block_table"

FIX = Fix(
    id="vllm.dummy-draft-kv",
    title="The dummy batch of an idle rank drafts into the KV cache of requests",
    symptom="x",
    signs=(SPECULATION, CACHED_PREFIX),
    cause="x",
    correction="x",
    upstream=Upstream("vllm-project/vllm", pull=56734),
    hardware="any GPU (data parallel ranks in lock step, speculative decoding, Model Runner V2)",
    default=True,
    default_reason="x",
    targets=(
        Target(
            wrap.propose,
            needed=wrap.drafts_through_rows,
            paths=(f"{_AUTO}:AutoRegressiveSpeculator.propose", f"{_EAGLE}:EagleSpeculator.propose"),
        ),
        Target(
            wrap.propose,
            needed=wrap.drafts_all_through_rows,
            paths=(f"{_MULTI}:MultiModuleMTPSpeculator.propose",),
        ),
    ),
    witnesses=(),
    examined=(">=0.10.0",),
    remove_when="no vLLM below 0.31.0 is served with data parallel ranks and speculative decoding",
    cost="x",
    expect="x",
    independent=True,
    harm=SLOWER,
)
