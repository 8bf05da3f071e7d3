"""vllm.accepted-counts-race, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

_WORKER = "vllm.v1.worker"
_RUNNER = f"{_WORKER}.gpu_model_runner:GPUModelRunner"
_BATCH = f"{_WORKER}.gpu_input_batch:InputBatch"

FIX = Fix(
    id="vllm.accepted-counts-race",
    title="Hybrid models with MTP now and then forget a prompt or drop a word",
    symptom=(
        "With MTP and several requests at a time, a hybrid model (Qwen3-Next, Qwen3.5, Qwen3.6) now and then forgets a prompt "
        "as its answer begins. It may also repeat or drop a word, or end an answer at once. It happens where other requests "
        "begin and end. No error."
    ),
    symptoms=(SHARED_BATCH, SPECULATION, GARBAGE),
    cause=(
        "How many drafts were accepted is copied to the host while the next step is prepared, in the order that the rows of "
        "the batch had. If it lands before the rows of the next step are moved, or meanwhile, the counts are moved with them "
        "and then looked up by the old rows once more: a request gets the count of another, and its layers read the state of "
        "another token. If it lands late and no request goes on, new ones get the counts of those that are gone."
    ),
    correction=(
        "While the runner moves the rows of a step, the counts stay where they were copied to. If no request of the last step "
        "goes on, all counts are 1."
    ),
    upstream=Upstream("vllm-project/vllm", pull=45100),
    hardware="any GPU (hybrid models with speculative decoding and asynchronous scheduling; the V1 model runner)",
    default=True,
    default_reason=(
        "silent wrong output; without cached states 0.24.0 uses the same counts. With cached states upstream has no correction "
        "yet: there the counts are those that the engine itself reads where their copy lands late, and new requests have 1, as "
        "it sets them. No state and no kernel is touched"
    ),
    targets=(Target(wrap.update_states, needed=wrap.gathers_counts, paths=(f"{_RUNNER}._update_states",)),),
    # Who moves the counts, who copies them, and who looks them up
    witnesses=(
        f"{_RUNNER}._prepare_inputs",
        f"{_RUNNER}._compute_prev_positions",
        f"{_RUNNER}._update_states_after_model_execute",
        f"{_RUNNER}._may_reorder_batch",
        f"{_RUNNER}._bookkeeping_sync",
        f"{_RUNNER}._on_request_state_removed",
        f"{_RUNNER}._process_encoder_cache_scheduler_output",
        f"{_RUNNER}._get_valid_sampled_token_count",
        f"{_RUNNER}._zero_block_ids",
        f"{_RUNNER}._update_streaming_request",
        "vllm.sampling_params:SamplingParams.sampling_type",
        f"{_BATCH}.__init__",
        f"{_BATCH}.add_request",
        f"{_BATCH}.remove_request",
        f"{_BATCH}.swap_states",
        f"{_BATCH}.condense",
        f"{_BATCH}.refresh_metadata",
        f"{_BATCH}.update_req_spec_token_ids",
        f"{_WORKER}.gpu_input_batch:CachedRequestState",
        f"{_WORKER}.block_table:MultiGroupBlockTable.append_row",
        f"{_WORKER}.mamba_utils:preprocess_mamba",
        f"{_WORKER}.mamba_utils:postprocess_mamba",
        f"{_WORKER}.mamba_utils:postprocess_mamba_align_gpu",
        "vllm.v1.spec_decode.utils:update_num_computed_tokens_for_batch_change",
        "vllm.v1.attention.backends.utils:reorder_batch_to_split_decodes_and_prefills",
        "vllm.config.speculative:SpeculativeConfig.use_ngram_gpu",
        "vllm.distributed.parallel_state:get_pp_group",
        f"{_WORKER}.gpu.pool.late_interaction_runner:LateInteractionRunner",
        "vllm.v1.pool.late_interaction_runner:LateInteractionRunner",
    ),
    remove_when="vLLM's V1 model runner is gone, or hybrid models are served without speculative decoding",
    cost=(
        "Host time of the correction: below 1 µs per step of a hybrid model with speculative decoding, up to 1024 rows. In "
        "steps in which every second row moves, 3 µs with 64 rows, 6 µs with 256 and 20 µs with 1024; more on a busy host. "
        "The wait for the copy stays where the engine has it. In a step in which no request of the last one goes on, it comes "
        "earlier by the time that the engine takes from there to its own wait in the same step."
    ),
    avoid=("Start with `--no-async-scheduling`: the counts land before rows are moved; each step waits for the last one."),
    expect=(
        "On one replica with MTP, let short requests come and go beside long ones at temperature 0: fixed, an answer is more "
        "often the one that its request gets alone. Other sums in another batch may still tip a token."
    ),
    look_does="its look keeps what it found on an object of the engine",
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Is("async scheduling", ON),
        Is("model runner", "V1"),
        AnyOf(
            Is("accepted counts on the host", "always"),
            AllOf(Is("accepted counts on the host", "where states are cached"), Is("cached prefixes of a hybrid model", ON)),
        ),
    ),
)
