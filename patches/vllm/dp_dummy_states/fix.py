"""vllm.dp-dummy-states, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, PARALLEL

from . import wrap

_WORKER = "vllm.v1.worker.gpu_worker"
_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_TABLE = "vllm.v1.worker.block_table"
_BATCH = "vllm.v1.worker.gpu_input_batch:InputBatch"
_V2 = "vllm.v1.worker.gpu"

_SLOTS, _GRAPHS, _V1, _MODEL_V2 = (
    "slots of a dummy batch",
    Is("full CUDA graphs", ON),
    Is("model runner", "V1"),
    Is("model runner", "V2"),
)

FIX = Fix(
    id="vllm.dp-dummy-states",
    title="Garbage or NaN once a data-parallel rank idled beside a working one",
    symptom=(
        "After a rank idled beside a working one, follow-up turns are garbage: hybrid models (Qwen3-Next, NemotronH), and "
        "answers behind a remote prefill. Up to 0.19.1, answers of any model with experts may become NaN. No error."
    ),
    symptoms=(PARALLEL, CACHED_PREFIX, GARBAGE),
    cause=(
        "A rank without work takes part in a step with a dummy batch. The rows of its block tables are those of former steps: "
        "layers with a recurrent state write into blocks that a cached prefix or a received request owns by then. Up to 0.19.1 "
        "its slots are those of former steps, too, or of the null block, which all requests see."
    ),
    correction=(
        "Before a dummy batch, the rows of block tables point to the null block, and no token has a slot. Up to 0.11.2, "
        "graphs keep the rows of states by themselves: attnfix corrects the slots there. A dummy run of the external launcher "
        "is left as it is. So are the rows of requests that are in the batch while their server is paused, and a drafter's own "
        "slots on Model Runner V1."
    ),
    upstream=Upstream("vllm-project/vllm", pull=49757),
    hardware="any GPU (data parallel ranks in lock step)",
    default_reason="no GPU has run it yet. Later releases point the rows and slots of a dummy batch to nothing, too",
    targets=(Target(wrap.execute_dummy_batch, needed=wrap.tables_of, paths=(f"{_WORKER}:Worker.execute_dummy_batch",)),),
    # Which rows and slots a dummy batch reads, and who clears them
    witnesses=(
        f"{_RUNNER}._dummy_run",
        f"{_RUNNER}._get_slot_mappings",
        f"{_RUNNER}._build_attention_metadata",
        f"{_RUNNER}._prepare_inputs",
        f"{_RUNNER}.synchronize_input_prep",
        f"{_TABLE}:BlockTable",
        f"{_TABLE}:MultiGroupBlockTable",
        f"{_BATCH}.remove_request",
        f"{_BATCH}.condense",
        f"{_V2}.block_table:BlockTables",
        f"{_V2}.block_table:_gather_block_tables_kernel",
        f"{_V2}.model_runner:GPUModelRunner._dummy_run",
    ),
    remove_when="no vLLM below 0.27.0 is served with data parallel ranks in lock step",
    cost="Nothing in a step with requests. In a dummy batch, two small launches for each group of layers.",
    avoid=(
        "From 0.20.0 start with `VLLM_USE_V2_MODEL_RUNNER=0` and `--compilation-config.cudagraph_mode PIECEWISE`; below, take "
        "release 0.20.0."
    ),
    expect=(
        "On one replica, let a rank answer a conversation, idle while another works, and answer the next turn: stock, that "
        "turn may be garbage; fixed, it is as with one rank."
    ),
    hits=AllOf(
        Above("data parallel ranks", 1),
        Is("ranks in lock step", ON),
        AnyOf(
            AllOf(
                Is("recurrent layers", ON),
                AnyOf(_MODEL_V2, _GRAPHS),
                AnyOf(Is("cached prefixes of a hybrid model", ON), Is("KV connector", ON)),
            ),
            AllOf(
                _V1,
                AnyOf(
                    Is(_SLOTS, "always"),
                    AllOf(Is(_SLOTS, "outside MLA"), Is("attention", "MHA")),
                    AllOf(Is(_SLOTS, "outside MLA", "in graphs"), _GRAPHS),
                ),
            ),
        ),
    ),
)
