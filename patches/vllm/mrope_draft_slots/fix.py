"""vllm.mrope-draft-slots, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import IMAGES, SPECULATION

from . import wrap

_RUNNER, _EAGLE = "vllm.v1.worker.gpu_model_runner:GPUModelRunner", "vllm.v1.spec_decode.eagle"
_BASE = "vllm.v1.spec_decode.llm_base_proposer:SpecDecodeBaseProposer"
_UTILS = "vllm.v1.spec_decode.utils"

FIX = Fix(
    id="vllm.mrope-draft-slots",
    title="Drafters of models with images accept fewer drafts behind an image (M-RoPE)",
    symptom=(
        "MTP or EAGLE makes two drafts or more on a model with M-RoPE (Qwen-VL, Qwen3.5, GLM-4V). Behind an image or a video, "
        "acceptance falls with each draft step. Later requests that share the prompt accept fewer drafts, too. The text stays "
        "right."
    ),
    symptoms=(SPECULATION, IMAGES),
    cause=(
        "From the second draft on, a drafter finds the slot of its key by the token's M-RoPE position. Behind an image this is "
        "smaller than the token's index, so the key is written over one of the prompt."
    ),
    correction=(
        "Slots follow from the tokens' indices, as in upstream's open change 54716; positions stay. Batches of text alone stay "
        "as they are. So do draft models, parallel drafts and DFlash, whose first pass places all keys by positions. "
        "So do tree attention and the drafter of Step 3.5, which find slots in other functions."
    ),
    upstream=Upstream("vllm-project/vllm", issue=54498, pull=54716),
    hardware="any GPU (EAGLE and MTP on the V1 model runner, models with M-RoPE)",
    harm=SLOWER,
    targets=(
        Target(
            wrap.propose_draft_token_ids,
            needed=wrap.behind_images,
            paths=(f"{_RUNNER}.propose_draft_token_ids",),
        ),
    ),
    # Sources of a step's slots, lengths and positions
    witnesses=(
        *(
            f"{cls}.{name}"
            for name in ("propose", "_set_positions", "_get_positions", "set_inputs_first_pass", "prepare_inputs_padded")
            for cls in (_BASE, f"{_EAGLE}:SpecDecodeBaseProposer")
        ),
        f"{_BASE}._update_positions_dependent_metadata",
        f"{_UTILS}:eagle_step_update_slot_mapping_and_metadata",
        f"{_UTILS}:_eagle_step_slot_mapping_metadata",
        f"{_UTILS}:eagle_step_slot_mapping_metadata_kernel",
        "vllm.v1.attention.backend:CommonAttentionMetadata",
    ),
    # Up to 0.17.1 a drafter finds the slots in its own loop (vllm.mrope-draft-loop)
    examined=(">=0.18.0",),
    cost=(
        "About eight small GPU operations for each draft behind the first, in batches with images or videos. Other batches of "
        "models with M-RoPE pay a look at each request: 20 µs a step at 256 requests. No graph changes."
    ),
    avoid=(
        "Set `num_speculative_tokens` to 1: the first draft's slot is right. On 0.29.0 and newer the default model runner "
        "V2 is right."
    ),
    expect=(
        "On one replica, send prompts with images, and compare the mean acceptance length of the engine's log: it rises, and "
        "the more so the more drafts there are. Text alone keeps its acceptance."
    ),
    hits=AllOf(
        Is("M-RoPE", ON),
        Is("model runner", "V1"),
        Is("drafts from hidden states", ON),
        Is("draft tokens of a step", "several"),
        Is("drafts made one by one", ON),
    ),
)
