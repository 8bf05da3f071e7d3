"""sglang.mrope-pairs, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, IMAGES

from . import wrap

_LAYER, _LATER = (f"{module}:MRotaryEmbedding" for module in (wrap.ROTARY, f"{wrap.ROTARY}.mrope"))

FIX = Fix(
    id="sglang.mrope-pairs",
    title="Garbage of GLM-4.1V: rotary embedding pairs the wrong halves of each head",
    symptom="All answers are broken, with and without images. The server is healthy.",
    symptoms=(GARBAGE, IMAGES),
    cause=(
        "GLM rotates neighbouring dimensions of a head against each other. The Triton kernel of M-RoPE rotates the halves of a "
        "head, whatever the model says."
    ),
    correction="Such layers rotate by the engine's code in torch, as up to 0.5.3. Models of halves keep the kernel.",
    upstream=Upstream("sgl-project/sglang", pull=11722),  # which brought the kernel
    hardware="NVIDIA GPUs (GLM-4.1V)",
    default=True,
    default_reason="silent wrong output; later releases rotate neighbours, too",
    targets=(Target(wrap.init, needed=wrap.turns_neighbours, paths=(f"{_LATER}.__init__", f"{_LAYER}.__init__")),),
    # The choice of the kernel, and its pairs
    witnesses=(
        f"{_LAYER}.forward",
        f"{_LAYER}._forward_triton",
        f"{_LAYER}._forward_native",
        f"{wrap.ROTARY}:triton_mrope",
        f"{wrap.ROTARY}:_triton_mrope_forward",
        f"{wrap.ROTARY}:_apply_rotary_emb",
    ),
    cost=(
        "Kernels that torch compiles at the first calls, in place of one kernel for each layer, as up to 0.5.3. A CUDA graph "
        "of decode replays them."
    ),
    avoid="Nothing within the release avoids it; take release 0.5.4.post2.",
    expect=(
        "On one replica, answers at temperature 0 become those of 0.5.3 or 0.5.4.post2. Storage that a server without the fix "
        "filled, as of HiCache, has keys of the other rotation: empty it."
    ),
    hits=AllOf(Is("architecture", "Glm4vForConditionalGeneration"), Is("GPU", "NVIDIA")),
)
