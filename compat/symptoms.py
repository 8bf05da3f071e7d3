"""What an operator sees of a bug, in words that many bugs share; docs/symptoms.md leads from them to the fixes."""

from __future__ import annotations

DIES = "The server dies"
CACHED_PREFIX = "A prompt whose prefix is cached is answered wrongly: a follow-up turn, a shared system prompt"
LONG_PROMPT = "A long prompt is answered wrongly, a short one well"
SHARED_BATCH = "An answer is wrong beside other requests, and right alone"
SPECULATION = "Speculative decoding accepts too few drafts, or changes the text"
GRAPHS = "Answers are wrong with CUDA graphs, and right without them"
KV_SCALES = "Answers are wrong with an FP8 KV cache, or with scales that a checkpoint brings for it"
PARALLEL = "Answers are wrong, or the server dies, with context parallelism or data-parallel attention"
CONTEXT_LIMIT = "Something breaks when a request comes near the context length"
IMAGES = "Images are misread"
BACKEND = "Any answer may be worse than on another attention backend"
GARBAGE = "Answers begin well, or not even that, and go on with garbage"
SLOW = "Steps take longer than they have to"

#: In the order of the page
SYMPTOMS = (
    DIES, CACHED_PREFIX, LONG_PROMPT, GARBAGE, SHARED_BATCH, SPECULATION, GRAPHS, KV_SCALES, PARALLEL, CONTEXT_LIMIT, IMAGES,
    BACKEND, SLOW,
)  # fmt: skip
