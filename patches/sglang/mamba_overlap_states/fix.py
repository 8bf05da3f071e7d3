"""sglang.mamba-overlap-states, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

from . import wrap

_ARGS, _CACHE = "sglang.srt.server_args:ServerArgs", "sglang.srt.mem_cache"
_REQUESTS, _SCHEDULER = "sglang.srt.managers.schedule_batch", "sglang.srt.managers.scheduler:Scheduler"
_RESULTS = "sglang.srt.managers.scheduler_output_processor_mixin:SchedulerOutputProcessorMixin"
_RUNNER = "sglang.srt.model_executor.model_runner:ModelRunner"

FIX = Fix(
    id="sglang.mamba-overlap-states",
    title="Qwen3-Next caches and frees states that the step in flight still writes (overlap)",
    symptom="A prompt with a cached prefix begins a token ahead, or with half a chunk; others, with a state of nobody.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    cause=(
        "A step is launched before the result of the last one is processed. By then it writes, in place, the states that are "
        "cached or given back with that result. A chunk of a prompt is cached while it is computed."
    ),
    correction="Steps run one at a time where recurrent states are cached, as if --disable-overlap-schedule were set.",
    upstream=Upstream("sgl-project/sglang", pull=13057),
    hardware="any GPU (Qwen3-Next, Jet-Nemotron)",
    targets=(Target(wrap.handle_other_validations, needed=wrap.overlaps, paths=(f"{_ARGS}._handle_other_validations",)),),
    # Who switches overlap and the cache, the order of steps and results, and keepers of states
    witnesses=(
        f"{_ARGS}.__post_init__",
        f"{_ARGS}._handle_model_specific_adjustments",
        f"{_ARGS}._handle_speculative_decoding",
        f"{_ARGS}.get_hf_config",
        f"{_RUNNER}.hybrid_gdn_config",
        f"{_SCHEDULER}.event_loop_overlap",
        f"{_RESULTS}.process_batch_result_prefill",
        f"{_RESULTS}.process_batch_result_decode",
        f"{_CACHE}.mamba_radix_cache:MambaRadixCache",
        f"{_CACHE}.memory_pool:MambaPool",
        f"{_CACHE}.memory_pool:HybridReqToTokenPool",
    ),
    default_reason=(
        "every step loses its overlap, and no run measured how many tokens/s that costs; upstream switches overlap off in the "
        "same place for these models"
    ),
    ranks_alike=True,  # the order of steps follows from it
    hits=AllOf(
        AnyOf(
            AllOf(Is("architecture", "Qwen3NextForCausalLM"), Is("Qwen3-Next overlaps", ON)),
            Is("architecture", "JetNemotronForCausalLM", "JetVLMForConditionalGeneration"),
        ),
        Is("kept recurrent states", ON),
        Is("steps overlap", ON),
        Is("speculative decoding", OFF),
    ),
    cost=(
        "The host's work between steps is no longer hidden behind the GPU: fewer tokens/s, as with "
        "--disable-overlap-schedule and as on the releases that correct this. The model's config is read once more at launch."
    ),
    avoid="Set --disable-overlap-schedule.",
    expect=(
        "On one replica at temperature 0, continue a conversation: its answer becomes that of a server without cached "
        "prefixes, to rounding."
    ),
)
