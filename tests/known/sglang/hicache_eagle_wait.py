"""sglang.hicache-eagle-wait: does a batch that drafts wait for the copy of its prefix from the host?

python tests/known/sglang/hicache_eagle_wait.py RELEASE      exit code 1: the bug is there

A correction tells the counter of copies which one a batch waits for, before a draft worker runs it.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import stubs


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    import torch

    if not hasattr(torch._C._cpu, "_is_amx_tile_supported"):  # the release asks for it; torch 2.13 has it no more
        torch._C._cpu._is_amx_tile_supported = lambda: False
    from attnfix.patches.lab.sglang import absent, hicache  # noqa: F401  the stand-ins for imports of `absent` are wanted here

    races = {drafting: hicache.recorded_threads(drafting).races for drafting in (False, True)}
    print(f"sglang {release}: {len(races[True])} races with drafts, {len(races[False])} without", *races[True][:1], sep=", ")
    return 1 if races[True] and not races[False] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
