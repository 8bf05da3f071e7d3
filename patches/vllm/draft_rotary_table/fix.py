"""vllm.draft-rotary-table, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, SPECULATION

from . import wrap

_SPECULATIVE, _V2 = "vllm.config.speculative:SpeculativeConfig", "vllm.v1.worker.gpu.spec_decode"
_ROTARY = "vllm.model_executor.layers.rotary_embedding"

FIX = Fix(
    id="vllm.draft-rotary-table",
    title="EAGLE or DFlash ends the server, or drafts garbage, beyond the drafter's own context length",
    symptom=(
        "A request grows beyond `max_position_embeddings` of the drafter's config.json: a device-side assertion, an illegal "
        "memory access, or drafts that are never accepted. Model Runner V2 only."
    ),
    symptoms=(DIES, SPECULATION, CONTEXT_LIMIT),
    cause=(
        "The drafter's rotary table has a row for each position of its own length. Model Runner V2 drafts up to the target's "
        "length, and reads beyond the table's end."
    ),
    correction=(
        "Before the drafter is loaded, its `max_position_embeddings` become the target's length, as in 0.33.0. Tables of RoPE "
        "types whose frequencies depend on their length (YaRN, dynamic, LongRoPE) stay short. So do independent draft models, "
        "and config.json without a length. MTP and DSpark get the same number. Compiled code of the longer table has a cache "
        "entry of its own."
    ),
    upstream=Upstream("vllm-project/vllm", pull=57964, issue=57941),
    hardware="any GPU (Model Runner V2 with EAGLE or DFlash, and a drafter with a shorter length than the server's)",
    default_reason=(
        "the length is part of the hash that names the folder of compiled code, which processes that share the cache read"
    ),
    targets=(
        Target(wrap.init_speculator, needed=wrap.short_configs, paths=(f"{_V2}:init_speculator",)),
        Target(wrap.compute_hash, needed=wrap.has_longer_table, paths=(f"{_SPECULATIVE}.compute_hash",)),
    ),
    # Makers of the drafter's config and of its table, and the positions that a drafter gets
    witnesses=(
        f"{_SPECULATIVE}.__post_init__",
        f"{_SPECULATIVE}._maybe_override_draft_max_position_embeddings",
        "vllm.transformers_utils.configs.eagle:EAGLEConfig.__init__",
        f"{_ROTARY}:get_rope",
        f"{_ROTARY}.base:RotaryEmbeddingBase._compute_cos_sin_cache",
        f"{_ROTARY}.base:RotaryEmbedding._compute_cos_sin_cache",
        f"{_V2}.eagle:EagleSpeculator.propose",
        f"{_V2}.eagle.speculator:EagleSpeculator.propose",
        f"{_V2}.autoregressive.speculator:AutoRegressiveSpeculator.propose",
        f"{_V2}.target_dependent_ar.speculator:TargetDependentARSpeculator.propose",
        f"{_V2}.dflash.speculator:DFlashSpeculator.propose",
    ),
    cost=(
        "256 to 512 bytes of GPU memory for each token of the server's length, once for all layers of the drafter. M-RoPE "
        "takes four times that, linear scaling `factor` times. The model is compiled once more after attnfix is installed."
    ),
    avoid=(
        "Write the target's length as `max_position_embeddings` into the drafter's config.json. Or set "
        "`VLLM_USE_V2_MODEL_RUNNER=0` (not with DSpark): the V1 model runner stops drafting there."
    ),
    expect=(
        "On one replica with drafts, ask a prompt longer than the drafter's `max_position_embeddings`. The server lives, and "
        "the share of accepted drafts stays above zero. Texts stay as they are: the target verifies every draft."
    ),
    harm=CRASH,
    look_does="its look at the hash goes by what a correction stored",
    hits=AllOf(
        Is("model runner", "V2"),
        Is("drafters with a length of their own", ON),
        Is("a drafter shorter than the server", ON),
    ),
)
