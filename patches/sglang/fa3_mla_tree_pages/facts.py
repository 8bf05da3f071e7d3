"""What decides sglang.fa3-mla-tree-pages alone."""

from attnfix.compat.doctor.deployment import Makers

FACTS: Makers = {"page size": lambda it: it.number("page-size", 1)}
