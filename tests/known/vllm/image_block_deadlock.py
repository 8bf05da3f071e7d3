"""vllm.image-block-deadlock: whether a request with two images that the encoder's cache does not hold together is answered.

python tests/known/vllm/image_block_deadlock.py RELEASE      exit code 1: the bug is there

A correction would align a chunk before the encoder's cache ends it, as in 0.28.0. Where a chunk begins within a block, it would
end it at the next boundary, which the split does from 0.26.0 on.
"""

import sys
from importlib import import_module

from attnfix.compat.releases import fetch
from attnfix.prove import side, stubs

#: Tokens of an image, of the encoder's cache, and places of the images, closer than a block of 16 tokens
IMAGE, CACHE, PLACES = 40, 60, (5, 47)


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    side._ease_engine("vllm")
    from attnfix.patches.lab.vllm import kernels
    from attnfix.patches.lab.vllm.scheduling import Engine

    kernels.stand_in()
    with Engine(mode="align", max_tokens=96, context=256) as engine:
        engine.scheduler.max_num_encoder_input_tokens = CACHE
        engine.scheduler.encoder_cache_manager = import_module("vllm.v1.core.encoder_cache_manager").EncoderCacheManager(
            cache_size=CACHE
        )
        inputs = import_module("vllm.multimodal.inputs")
        features = [
            inputs.MultiModalFeatureSpec(
                data=None, modality="image", identifier=f"image-{at}",
                mm_position=inputs.PlaceholderRange(offset=at, length=IMAGE),
            )
            for at in PLACES
        ]  # fmt: skip
        request = engine.add([7] * 100, 1, features)
        idle = 0
        for _ in range(30):
            step = engine.schedule()
            idle += not step.num_scheduled_tokens
            computed = request.num_computed_tokens
            engine.finish(step, {name: [1] for name in step.num_scheduled_tokens if computed >= request.num_tokens})
            if not engine.scheduler.has_unfinished_requests():
                break
        waits = engine.scheduler.has_unfinished_requests()
    print(f"vllm {release}: {f'{computed} of 100 tokens computed, {idle} steps are empty' if waits else 'answered'}")
    return 1 if waits else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
