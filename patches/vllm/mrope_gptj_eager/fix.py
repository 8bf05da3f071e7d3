"""vllm.mrope-gptj-eager, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, IMAGES

from . import wrap

_ROTARY, _CONFIG = "vllm.model_executor.layers.rotary_embedding", "VllmConfig.compute_hash"
_LAYER = f"{_ROTARY}.mrope:MRotaryEmbedding"

FIX = Fix(
    id="vllm.mrope-gptj-eager",
    title="GLM-4.1V and GLM-OCR answer garbage in eager mode: the kernel of M-RoPE pairs other dimensions",
    symptom="GLM-4.1V or GLM-OCR garbles text or repeats itself with `--enforce-eager`. Compiled, 0.10.2 is right.",
    symptoms=(GARBAGE, IMAGES),
    cause=(
        "GLM rotates neighbouring dimensions of a head against each other. The Triton kernel of M-RoPE rotates the halves of a "
        "head, whatever the model says. Compiled code rotates in torch."
    ),
    correction=(
        "Such layers rotate by the engine's code in torch, as compiled ones do. Models of halves keep the kernel. A server "
        "with a KV connector stays as it is, since its keys have readers elsewhere. Compiled code of a corrected layer has a "
        "cache entry of its own; where `cache_dir` names its folder, all stays as it is."
    ),
    upstream=Upstream("vllm-project/vllm", issue=49290, pull=49323),
    hardware="NVIDIA and AMD GPUs (GLM-4.1V, GLM-OCR)",
    default=True,
    default_reason="garbage from published models; compiled code rotates likewise, and 0.27.0 rotates neighbours by the kernel",
    targets=(
        Target(wrap.init, needed=wrap.turns_neighbours, paths=(f"{_LAYER}.__init__",)),
        Target(wrap.compute_hash, needed=wrap.is_corrected, paths=(f"vllm.config.vllm:{_CONFIG}", f"vllm.config:{_CONFIG}")),
    ),
    # The choice of the kernel, its pairs, and the rotation that stands for it
    witnesses=(
        f"{_LAYER}.forward",
        f"{_LAYER}.forward_cuda",
        f"{_LAYER}.forward_native",
        f"{_ROTARY}.mrope:triton_mrope",
        f"{_ROTARY}.mrope:_triton_mrope_forward",
        f"{_ROTARY}.mrope:_triton_qwen2vl_mrope_forward",
    ),
    cost=(
        "Some kernels of torch in place of one for each layer, in eager mode. A model that is compiled with the kernel is "
        "compiled once more after the fix is switched on."
    ),
    avoid="From 0.10.2 start without `--enforce-eager` and with the default compilation mode.",
    expect="On one replica, garbage becomes answers. Layers share one embedding, which counts once, when a model is loaded.",
    look_does="its look at the hash goes by what a correction stored",
    stays_out=AnyOf(Is("KV connector", ON), Given("--compilation-config.cache_dir")),
    hits=AllOf(
        Is("architecture", "Glm4vForConditionalGeneration", "GlmOcrForConditionalGeneration"),
        Is("rotation by M-RoPE", "kernel"),
    ),
)
