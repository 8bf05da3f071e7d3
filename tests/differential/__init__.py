"""Stock, patched and float64 side by side, over what an engine can be set to. `make differential` runs it.

    space      what can be drawn: axes of settings, and requests whose lengths sit on the edges
    protocol   what goes between the parts, and what an engine's part offers
    reference  attention in float64, and how far from it a right result may be
    side       one process for an engine's release and a side: it imports the engine once and forks for each case
    run        draws cases, has both sides run them, appends what came out to a file
    judge      what the answers of both sides mean
    shrink     a case made as small as it can be
    spared     configurations in which fixes are to do nothing
    branches   which branches of the engine and of the corrections a run entered
    launches, recorder, record      launches of stand-ins, recorded
    stand_ins, stand_ins_worker     the same on a GPU, beside the real kernels
    interpreter     Triton's, made faster
    vllm, sglang   the engines' parts

Words: a *setting* is one flag of the engine with its value. A *case* is the settings and the requests of one server, with the
seed of their contents: JSON. A *side* is stock (ATTNFIX=0) or patched (by the installed `.pth`).
"""
