#!/usr/bin/env python3
"""Writes what is generated from fixes, ledgers, the last matrix run, the last benchmark and the rules: README.md, docs/*.

    python -m scripts.pages.generate            write
    python -m scripts.pages.generate --check    fail if a generated part is out of date

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from attnfix.cli.listing import describe, span
from attnfix.compat.arming import switches
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import FIXES
from scripts.pages import (
    differential_page,
    gpu_runs,
    kernels_page,
    robustness_table,
    support_page,
    symptoms_page,
)

ROOT = Path(__file__).resolve().parents[2]


def changelog_fixes() -> str:
    """A line for each fix that no version below the newest one has."""
    published = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[2:]
    fixes = [fix for fix in FIXES if not any(f"- `{fix.id}`" in version for version in published)]
    return "\n".join(textwrap.fill(_changed(fix), 128, subsequent_indent="  ", break_on_hyphens=False) for fix in fixes)


def _changed(fix: Fix) -> str:
    off, affected = "" if fix.default else " (off by default)", describe(fix)["affected"]
    releases = span(affected) if affected else "between releases"
    return f"- `{fix.id}`{off}: {fix.title}; {fix.engine} {releases}."


def general_switches() -> str:
    return _table(("variable", "meaning"), ((f"`{name}`", meaning) for name, meaning in switches.GENERAL.items()))


def fix_switches() -> str:
    rows = (
        (f"`{fix.switch}`", "on" if fix.default else "off", f"[{fix.title}](../patches/{fix.package.replace('.', '/')}/fix.py)")
        for fix in FIXES
    )
    return _table(("variable", "default", "fix"), rows)


def not_observable() -> str:
    rows = ((f"`{fix.id}`", fix.unobservable.replace("__", r"\_\_")) for fix in FIXES if fix.unobservable)
    return _table(("fix", "because"), rows)


def allow_lists() -> str:
    """What each engine's plugin allow-list lets in, asked of the code that reads it."""
    values = ("unset", "empty", "`attnfix`", "`other`", "`other, attnfix`")
    rows = []
    for engine in ENGINES.values():
        admitted = (engine.admits_us({} if text == "unset" else {engine.allow_list: _value(text)}) for text in values)
        rows.append((engine.name, f"`{engine.allow_list}`", *("in" if admits else "out" for admits in admitted)))
    return _table(("engine", "variable", *values), rows)


def prometheus_rule() -> str:
    """The rules for Prometheus as a resource of its operator."""
    rules = (ROOT / "docs/monitoring/attnfix.rules.yml").read_text()
    return (
        "# Generated from attnfix.rules.yml. `DOCS` in each runbook_url is the address at which you serve docs/.\n"
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: attnfix\nspec:\n"
        + textwrap.indent(rules[rules.index("groups:\n") :], "  ")
    )


def _value(text: str) -> str:
    return "" if text == "empty" else text.strip("`")


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join([_row(header), "|" + "---|" * len(header), *map(_row, rows)])


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


PARTS: dict[str, Callable[[], str]] = {
    "symptoms": partial(symptoms_page.release_table, "docs/"),
    "changelog_fixes": changelog_fixes,
    "general_switches": general_switches,
    "fix_switches": fix_switches,
    "allow_lists": allow_lists,
    "not_observable": not_observable,
    "totals": support_page.totals,
    "times": kernels_page.times,
    "goals": kernels_page.goals,
    "served": gpu_runs.served,
    "harmless": gpu_runs.harmless,
    "probes": gpu_runs.probes,
    "releases": gpu_runs.releases,
    "firing": gpu_runs.firing,
    "runs": gpu_runs.table,
    "raw": gpu_runs.raw,
    "robustness": robustness_table.table,
    "costs": robustness_table.costs,
    "differential": differential_page.table,
    "axes": differential_page.axes,
    "not_reached": differential_page.not_reached,
    "candidates": differential_page.candidates,
    "seen": differential_page.seen,
    "stand_ins": differential_page.stand_ins,
}
WRITTEN: dict[str, Callable[[], str]] = {
    "README.md": lambda: filled((ROOT / "README.md").read_text()),
    "CHANGELOG.md": lambda: filled((ROOT / "CHANGELOG.md").read_text()),
    "docs/kernels.md": lambda: filled((ROOT / "docs/kernels.md").read_text()),
    "docs/evidence/README.md": lambda: filled((ROOT / "docs/evidence/README.md").read_text()),
    "docs/seen-on-a-gpu.md": lambda: filled((ROOT / "docs/seen-on-a-gpu.md").read_text()),
    "docs/safety.md": lambda: filled((ROOT / "docs/safety.md").read_text()),
    "docs/differential.md": lambda: filled((ROOT / "docs/differential.md").read_text()),
    "docs/switches.md": lambda: filled((ROOT / "docs/switches.md").read_text()),
    "docs/monitoring/kubernetes/prometheusrule.yaml": prometheus_rule,
    "docs/support.md": partial(support_page.page, "support.md"),
    "docs/symptoms.md": symptoms_page.page,
    **{f"docs/symptoms-{engine}.md": partial(symptoms_page.engine_page, engine) for engine in ENGINES},
}


def filled(text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}\n{PARTS[match[2]]()}\n{match[3]}"

    return re.sub(r"(<!-- generated: (\w+) -->)\n.*?(<!-- end -->)", fill, text, flags=re.S)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="compare instead of writing")
    check = arguments.parse_args().check
    stale = []
    for name, written in WRITTEN.items():
        path, text = ROOT / name, written()
        if not path.is_file() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
    for name in stale:
        print(f"{name}: {'out of date; run scripts/pages/generate.py' if check else 'written'}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
