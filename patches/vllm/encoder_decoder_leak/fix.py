"""vllm.encoder-decoder-leak, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES

from . import wrap

_MANAGER = "vllm.v1.core.encoder_cache_manager:EncoderDecoderCacheManager"

FIX = Fix(
    id="vllm.encoder-decoder-leak",
    title="A server of Whisper runs out of GPU memory: encoder outputs are never freed",
    symptom="GPU memory grows with each recording or image of an encoder-decoder model, up to an error of memory.",
    symptoms=(DIES,),
    cause=(
        "A step names the encoder outputs that it computes as free. The worker drops them first and computes them then, so "
        "that they stay."
    ),
    correction="The step behind names them. Models whose images lie in a prompt have another manager, and stay as they are.",
    upstream=Upstream("vllm-project/vllm", issue=31577, pull=32789),
    hardware="any GPU (encoder-decoder models: Whisper, Nemotron Parse)",
    harm=CRASH,
    default=True,
    default_reason="the engine dies; upstream corrected it in 0.14.1 in the same way",
    targets=(Target(wrap.get_freed_mm_hashes, needed=wrap.some_are_computed, paths=(f"{_MANAGER}.get_freed_mm_hashes",)),),
    # Which outputs a step names as free, and when a worker drops and keeps them
    witnesses=(
        _MANAGER,
        "vllm.v1.core.sched.scheduler:Scheduler.schedule",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._update_states",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._execute_mm_encoder",
    ),
    remove_when="no vLLM below 0.14.1 serves an encoder-decoder model",
    look_does="its look reads what a correction stored",
    cost="Two attributes on the host for each step with recordings.",
    avoid="Nothing within the release avoids it; restart the server before its memory is full, or take release 0.14.1.",
    expect="On one replica, transcribe some thousand recordings: stock its GPU memory grows by megabytes each, fixed it stays.",
    hits=Is("architecture", "WhisperForConditionalGeneration", "NemotronParseForConditionalGeneration"),
)
