"""What decides sglang.fa3-mla-tree-pages alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import backend

#: Backends of decode -> the size of a page that they set, whatever is named (server_args.py:1855-1872 of 0.5.9)
_PAGES = {"flashmla": 64, "cutlass_mla": 128}


def _page(it: Deployment) -> Fact:
    decode = backend(it, "decode")
    if len(decode.values) == 1 and (pages := _PAGES.get(str(decode.values[0]))):
        return known(pages, f"decode backend: {decode}")
    return it.number("page-size", 1)


FACTS: Makers = {"page size": _page}
