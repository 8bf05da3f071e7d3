"""sglang.short-chunk-hang, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, LONG_PROMPT

from . import wrap

_MANAGERS = "sglang.srt.managers"

FIX = Fix(
    id="sglang.short-chunk-hang",
    title="Prompts longer than a chunk wait for ever in deterministic mode (Triton and FlashInfer)",
    symptom=(
        "With --enable-deterministic-inference, a prompt longer than --chunked-prefill-size gets no answer, nor do those "
        "behind it; /health answers. GPUs of 16-24 GB have such chunks by default."
    ),
    symptoms=(DIES, LONG_PROMPT),
    cause=(
        "Chunks end at multiples of an alignment, 4096 tokens by default. Where the chunk of a rank is smaller, no prompt can "
        "be cut, and none that needs a cut is ever taken from the queue."
    ),
    correction=(
        "An alignment above the chunk becomes the chunk. A prompt is cut behind whole chunks, whatever runs beside it. With "
        "--enable-mixed-chunk, which takes room for decodes from a chunk, it waits until nothing decodes."
    ),
    upstream=Upstream("sgl-project/sglang", issue=36344),
    hardware="any GPU (Triton and FlashInfer, deterministic inference)",
    default=True,
    default_reason="requests that wait for ever; red to green on an H200. Prompts that stock answers keep their bits",
    targets=(
        Target(
            wrap.init_deterministic_inference_config,
            needed=wrap.has_chunks,
            paths=(f"{_MANAGERS}.scheduler:Scheduler.init_deterministic_inference_config",),
        ),
    ),
    # The size of a chunk, the cut of a prompt, and the refusal of such a launch (from 0.5.22 on)
    witnesses=(
        f"{_MANAGERS}.scheduler:Scheduler.init_chunked_prefill",
        f"{_MANAGERS}.scheduler:Scheduler.check_truncation_align_fits_chunk",
        f"{_MANAGERS}.schedule_policy:PrefillAdder",
    ),
    cost="A look at two numbers when a scheduler starts.",
    avoid="Set `--chunked-prefill-size` to 4096, times --dp-size where --enable-dp-attention divides it.",
    expect=(
        "On one replica, send a prompt longer than the chunk: stock, the request ends with the client's timeout, fixed it is "
        "answered. One correction is counted for each scheduler."
    ),
    ranks_alike=True,  # what a batch holds follows from it
    hits=AllOf(Is("deterministic inference", ON), Is("chunk shorter than its alignment", ON)),
)
