"""vllm.image-mask-race, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.image-mask-race",
    title="Image embeddings now and then land on the places of another step (async scheduling, drafters)",
    symptom="Under load images are misread at random: the mask of their places is overwritten while it is copied to the GPU.",
    symptoms=(IMAGES, SHARED_BATCH),
    releases=(">=0.11.1,<0.14.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._gather_mm_embeddings",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        AnyOf(
            AllOf(Since("0.12.0"), Is("async scheduling", ON)),
            AllOf(Is("drafts from hidden states", ON), Not(Given("--speculative-config.disable_padded_drafter_batch"))),
        ),
        Unseen("prompts with images, audio or video in steps that follow each other, or that a drafter takes"),
    ),
    avoid="Start without `--async-scheduling` and without a drafter.",
)
