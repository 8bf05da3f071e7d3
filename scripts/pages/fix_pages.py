"""A page of the site for each fix, and their index, from fix.py, the ledger and the last run of scripts/ledger/matrix.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from packaging.version import Version

from attnfix.cli.listing import avoided, describe, span
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Attribute, Fix
from attnfix.patches.catalogue import FIXES
from scripts.pages import gpu_runs, support_page

FOLDER = "fixes"


def pages() -> Mapping[str, Callable[[], str]]:
    """{path in the site: what writes it}."""
    index = partial(support_page.rendered, "fixes.md", fixes=[_indexed(fix) for fix in FIXES], span=span)
    return {f"{FOLDER}/README.md": index} | {f"{FOLDER}/{fix.id}.md": partial(page, fix) for fix in FIXES}


def sources() -> dict[str, str]:
    """{file of the project that pages of docs/ link to: page of that fix}"""
    return {f"{_folder(fix)}/fix.py": f"{FOLDER}/{fix.id}.md" for fix in FIXES}


def _folder(fix: Fix) -> str:
    return f"patches/{fix.package.replace('.', '/')}"


def _indexed(fix: Fix) -> tuple[Fix, dict[str, Any], dict[str, str]]:
    return fix, describe(fix), {name: _from_here(address) for name, address in fix.upstream.links.items()}


def page(fix: Fix) -> str:
    cells = [cell for cell in support_page.cells() if cell["fix"] == fix.id]
    proven = [cell for cell in cells if cell["verdict"] == "proven"]
    published = [cell for cell in proven if not cell["edit"]]
    edited = [cell for cell in cells if cell["edit"]]
    _, row, links = _indexed(fix)
    targets = {place for target in fix.targets for place in target.code_paths}
    return support_page.rendered(
        "fix.md",
        fix=fix,
        row=row,
        avoided=avoided(fix),
        engine=ENGINES[fix.engine].title,
        serve=f"{fix.engine} serve",
        span=span,
        links=links,
        folder=f"../../{_folder(fix)}",
        proof_arguments=_proof_arguments(fix, row["affected"], edited),
        attributes=any(isinstance(target, Attribute) for target in fix.targets),
        others=[place for place in fix.code_paths if place not in targets],
        measure=next((cell["measure"] for cell in proven if cell["measure"]), "relative error against float64"),
        codes=[
            {**_figures(group), "name": code, "corrections": _span_of(group, "corrections"), "evidence": group[0]["evidence"]}
            for code, group in _grouped(published, "code").items()
        ],
        edits=[
            {**_figures(group), "name": edit, "verdict": group[0]["verdict"]}
            for edit, group in _grouped(edited, "edit").items()
        ],
        served=gpu_runs.corrected(fix.id),
        firing=gpu_runs.firing_of(fix.id),
        healthy=len(cells) - len(edited) - len(published),
    )


def _from_here(address: str) -> str:
    return address if "://" in address else "../" + address.removeprefix("docs/")


def _proof_arguments(fix: Fix, affected: list[str], edited: list[dict[str, Any]]) -> str:
    """Of the command that proves the fix on the newest release that has the bug, or into which it was put back."""
    if affected:
        return f" --engine {fix.engine}=={affected[-1]} --fix {fix.id}"
    if not edited:
        return f" --fix {fix.id}"
    newest = max(edited, key=lambda cell: Version(cell["release"]))
    return f' --engine {fix.engine}=={newest["release"]} --fix {fix.id} --edit "{newest["edit"]}"'


def _grouped(cells: list[dict[str, Any]], field: str) -> dict[str, list[dict[str, Any]]]:
    """Cells with equal `field` together, each group in release order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in sorted(cells, key=lambda cell: Version(cell["release"])):
        groups.setdefault(cell[field], []).append(cell)
    return groups


def _figures(group: list[dict[str, Any]]) -> dict[str, str]:
    """Releases and worst errors of cells that go into one row."""
    stock, fixed = (_worst(group, f"{side}_error") for side in ("stock", "fixed"))
    shown = f"{stock} → {fixed}" if group[0]["verdict"] == "proven" else "-"
    return {"releases": span([cell["release"] for cell in group]), "figures": shown}


def _worst(group: list[dict[str, Any]], field: str) -> str:
    errors = [cell[field] for cell in group]
    return support_page.number(None if None in errors else max(errors))


def _span_of(group: list[dict[str, Any]], field: str) -> str:
    values = [cell[field] for cell in group]
    least, most = min(values), max(values)
    return str(most) if least == most else f"{least} … {most}"
