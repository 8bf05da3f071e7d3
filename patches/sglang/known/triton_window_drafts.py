"""sglang.triton-window-drafts, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

_LAYERS = Is(
    "architecture",
    *("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"),
)
_WINDOWS = AllOf(
    Is("speculative algorithm", "EAGLE3"),
    Given("--speculative-draft-window-size"),
    Above("speculative steps", 1),
    Unseen("a draft model LlamaForCausalLMEagle3"),
)

BUG = KnownBug(
    id="sglang.triton-window-drafts",
    title="The server dies at the start where draft layers have a sliding window (Triton)",
    symptom="Capture of the draft model's CUDA graphs ends with an error of the Triton compiler about None.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.5.11,<0.5.23",),
    code=(
        "sglang.srt.layers.attention.triton_backend:TritonAttnBackend.init_forward_metadata_capture_cuda_graph",
        "sglang.srt.layers.attention.triton_backend:TritonAttnBackend._build_cuda_graph_forward_metadata",
    ),
    upstream=Upstream("sgl-project/sglang", issue=24481),
    hits=AnyOf(
        AllOf(_LAYERS, Is("speculative algorithm", "EAGLE"), Is("draft extend backend", "triton"), Is("CUDA graphs", ON)),
        AllOf(_WINDOWS, Is("draft decode backend", "triton")),
    ),
    avoid="Name another backend with --speculative-draft-attention-backend.",
    harm=CRASH,
)
