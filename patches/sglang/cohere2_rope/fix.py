"""sglang.cohere2-rope, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import LONG_PROMPT

from . import wrap

_MODEL = "sglang.srt.models.commandr"
_LAYER = f"{_MODEL}:CohereAttention"

FIX = Fix(
    id="sglang.cohere2-rope",
    title="Worse answers of Command A and Command R7B: all layers rotate, and none has a window",
    symptom="Command A and Command R7B miss what their reference finds in long prompts. No error.",
    symptoms=(LONG_PROMPT,),
    cause=(
        "Every fourth layer of Cohere 2 sees all tokens without position encoding, and the others see a window of 4096. The "
        "engine rotates queries and keys in all layers, and all of them see the whole context."
    ),
    correction=(
        "Every fourth layer rotates nothing. On fa3 and trtllm_mha the others get their window, unless the server speculates "
        "or is deterministic; elsewhere they keep the whole context, since the engine would share out memory by the window. A "
        "server whose keys others share stays as it is."
    ),
    upstream=Upstream("sgl-project/sglang", pull=16927, issue=4570),
    hardware="any GPU (Command A, Command R7B)",
    default=True,
    default_reason="silent wrong output; fixed upstream to the same effect. Keys of both kinds never meet",
    targets=(Target(wrap.init, needed=wrap.of_cohere2, paths=(f"{_LAYER}.__init__",)),),
    # Rotation, the window's readers, and the server's launch
    witnesses=(
        f"{_LAYER}.forward",
        f"{_MODEL}:CohereDecoderLayer.__init__",
        "sglang.srt.server_args:get_global_server_args",
    ),
    cost="Less work in each step: a quarter of the layers does not rotate. Nothing else while it serves.",
    avoid="Nothing within the release avoids it; take release 0.5.8, and fa3 or trtllm_mha there.",
    expect=(
        "On one replica, answers at temperature 0 become those of 0.5.8 with fa3, whose windows have a token more. Each layer "
        "counts once, when the model is loaded. Beyond 4096 tokens, layers stay without a window on other backends, with "
        "speculative decoding and with deterministic inference."
    ),
    stays_out=Is("others that share keys", ON),
    hits=Is("architecture", "Cohere2ForCausalLM"),
)
