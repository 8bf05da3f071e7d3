"""What decides sglang.skip-seq-lens-sync alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON
from attnfix.compat.doctor.deployment import Makers, switch

FACTS: Makers = {
    "two-batch overlap": lambda it: switch(it.option("enable-two-batch-overlap", OFF), ON),
}
