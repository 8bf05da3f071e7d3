"""vllm.image-mask-race, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import IMAGES, SHARED_BATCH

from . import wrap

_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"

FIX = Fix(
    id="vllm.image-mask-race",
    title="Image embeddings now and then land on the places of another step (async scheduling, drafters)",
    symptom="Under load images are misread at random, or the engine dies: embeddings lie on the places that another step has.",
    symptoms=(IMAGES, SHARED_BATCH),
    cause=(
        "One pinned buffer holds which tokens of a step are images. Its copy to the GPU waits behind the encoder. The drafter, "
        "or the next step, overwrites it before."
    ),
    correction=(
        "Each mask gets pinned memory of its own. torch keeps it until its copy has run. 0.14.0 takes two buffers in turn."
    ),
    upstream=Upstream("vllm-project/vllm", pull=31841, issue=31679),
    hardware="NVIDIA and AMD GPUs (models with images, audio or video)",
    default=True,
    default_reason="silent wrong output; later releases write each mask elsewhere, too. No value of an input changes",
    targets=(Target(wrap.gather, needed=wrap.runs_ahead, paths=(f"{_RUNNER}._gather_mm_embeddings",)),),
    # The buffer, its copy, who waits for it, and who writes it a second time
    witnesses=(
        f"{_RUNNER}._make_buffer",
        f"{_RUNNER}.synchronize_input_prep",
        f"{_RUNNER}.execute_model",
        f"{_RUNNER}._preprocess",
        f"{_RUNNER}.propose_draft_token_ids",
        "vllm.v1.utils:CpuGpuBuffer.__init__",
        "vllm.v1.utils:CpuGpuBuffer.copy_to_gpu",
    ),
    cost=(
        "On an H200, 10 µs of the host for each mask, 120 µs in the worst of 75,600 (torch 2.11). A server's first masks make "
        "pinned memory, a byte for each token: 2.4 ms at most, without a wait for the GPU."
    ),
    avoid="Start without `--async-scheduling` and without a drafter.",
    expect="On one replica under load, descriptions of images become those of one request at a time. Each mask counts once.",
    hits=AllOf(
        Is("inputs other than text", ON),
        AnyOf(Is("mask of images ahead of its copy", ON), Is("mask of images shared with a drafter", ON)),
    ),
)
