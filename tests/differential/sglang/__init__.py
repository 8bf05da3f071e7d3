"""sglang's part of the differential run: whole servers, but for the processes around the scheduler.

    space      what can be drawn
    launch     a server's scheduler by its own constructor, on a machine without a GPU
    models     config.json of the models
    texts      tokens of requests, and the queries, keys and values that attention is handed for them
    mla        latent attention: what is drawn, and where
    adapters   LoRA adapters, and what they should add
    images     a model that takes images, and what an encoder would make of them
    kernels    stand-ins for GPU kernels, at their entry points; flash_attention, mla_kernels, trtllm and trees have them
    rows       what each layer was handed, and what it returned
    server     steps of the engine's own event loop, and attention of each against float64

Real: `ServerArgs` from flags, `Scheduler` with its event loop, radix cache, allocators, policies and invariant checks,
`ModelRunner` with the model's own classes and random weights, KV pools, its backend from the registry, `ForwardBatch`.
What stands in the place of something: `launch`, `kernels` and `images` say it.
"""
