"""vllm.dummy-draft-kv, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, SPECULATION

from . import wrap

_GPU = "vllm.v1.worker.gpu"
_SPEC = f"{_GPU}.spec_decode"
_BASE = f"{_SPEC}.speculator:DraftModelSpeculator"
_AUTO = f"{_SPEC}.autoregressive.speculator"
_EAGLE = f"{_SPEC}.eagle.speculator"
_MULTI = f"{_SPEC}.multi_module_mtp.speculator"
_TABLES = f"{_GPU}.block_table"
_WORKER = "vllm.v1.worker.gpu_worker"

FIX = Fix(
    id="vllm.dummy-draft-kv",
    title="Drafts are rejected until a restart with data-parallel ranks in lock step",
    symptom=(
        "The share of accepted drafts falls with data parallel ranks in lock step and MTP or EAGLE. For some prompts it stays "
        "near 0 until a restart, or until their prefix has left the cache. The text of models with attention alone stays "
        "right. By reading, it may not for a hybrid model: a block that was a finished request's keys may be another one's "
        "recurrent state by then."
    ),
    symptoms=(SPECULATION, CACHED_PREFIX),
    cause=(
        "A rank that has nothing to run takes part with a dummy batch, and its drafter with dummy drafts. Its target writes no "
        "KV then. The drafter, from its second token on, takes the slots of the requests that are or were in the first rows of "
        "the block table. It overwrites the drafter's keys and values near the begin of their first block, which may be a "
        "cached prefix, or be another request's by then."
    ),
    correction=(
        "While a dummy batch drafts, none of its tokens has a slot: the engine's own switch of each group of the cache says "
        "so, and is put back behind it, on the GPU. 0.17.0-0.28.0 have the same fault with VLLM_USE_V2_MODEL_RUNNER=1, and no "
        "such switch: attnfix leaves them alone."
    ),
    upstream=Upstream("vllm-project/vllm", pull=56734),
    hardware="any GPU (data parallel ranks in lock step, two or more drafts by MTP or EAGLE, Model Runner V2)",
    default=True,
    default_reason="drafts that are not accepted any more; from 0.31.0 upstream gives a dummy batch no slots, either",
    # Not `propose` of a speculator: it stands in a decorator, as `_dummy_run` does. Capture and warm-up do not come by here
    targets=(
        Target(wrap.execute_dummy_batch, needed=wrap.drafts_through_rows, paths=(f"{_WORKER}:Worker.execute_dummy_batch",)),
    ),
    # Which rows a dummy request names, and who makes slots of them
    witnesses=(
        f"{_AUTO}:AutoRegressiveSpeculator.propose",
        f"{_EAGLE}:EagleSpeculator.propose",
        f"{_MULTI}:MultiModuleMTPSpeculator.propose",
        f"{_TABLES}:BlockTables",
        f"{_TABLES}:_compute_slot_mappings_kernel",
        f"{_BASE}._copy_request_inputs",
        f"{_AUTO}:AutoRegressiveSpeculator._copy_request_inputs",
        f"{_AUTO}:AutoRegressiveSpeculator._multi_step_decode",
        f"{_AUTO}:AutoRegressiveSpeculator._fused_multi_step_decode",
        f"{_AUTO}:AutoRegressiveSpeculator._generate_fused_drafts",
        f"{_AUTO}:AutoRegressiveSpeculator._generate_draft",
        f"{_AUTO}:AutoRegressiveSpeculator._prefill",
        f"{_AUTO}:prepare_decode_inputs",
        f"{_AUTO}:prepare_prefill_inputs",
        f"{_AUTO}:update_draft_inputs",
        f"{_EAGLE}:EagleSpeculator.generate_draft",
        f"{_EAGLE}:EagleSpeculator.prefill",
        f"{_EAGLE}:EagleSpeculator._multi_step_decode",
        f"{_EAGLE}:EagleSpeculator._generate_draft",
        f"{_EAGLE}:EagleSpeculator._prefill",
        f"{_EAGLE}:prepare_eagle_inputs",
        f"{_EAGLE}:prepare_eagle_decode",
        f"{_EAGLE}:update_eagle_inputs",
        f"{_MULTI}:MultiModuleMTPSpeculator._prepare_inputs",
        f"{_MULTI}:MultiModuleMTPSpeculator._generate_drafts",
        f"{_GPU}.input_batch:InputBatch.make_dummy",
        f"{_GPU}.input_batch:InputBuffers.__init__",
        f"{_GPU}.attn_utils:build_slot_mappings_by_layer",
        f"{_GPU}.model_runner:GPUModelRunner._dummy_run",
    ),
    remove_when="no vLLM below 0.31.0 is served with data parallel ranks and speculative decoding",
    cost="Nothing in a step with requests. In a dummy run, three copies of some bytes on the GPU.",
    avoid=(
        "Draft one token, `--speculative-config.num_speculative_tokens 1`: dummy batches then draft no second one; "
        "fewer drafts are accepted."
    ),
    expect=(
        "On one replica, send long conversations to one rank while the others idle: the share of accepted drafts stays as with "
        "one rank. The logits that a probabilistic drafter keeps for a request may still be those of a dummy run."
    ),
    harm=SLOWER,
    hits=AllOf(
        Is("model runner", "V2"),
        Above("data parallel ranks", 1),
        Is("ranks in lock step", ON),
        Is("drafts of a dummy batch", "several"),
    ),
)
