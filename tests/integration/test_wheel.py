"""The wheels and both kinds of install: what lies where, and what is left after uninstalling."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser

import pytest

from tests.support import elf, environments

ARCHITECTURES = (80, 90, 100, 120)
KERNELS = ("fixup_zero_kv_rows", "merge_attn_states")


def test_wheel_is_pure_and_holds_kernels_pth_and_typing(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    options = {f"attnfix/compat/doctor/options_{engine}.json" for engine in ("sglang", "vllm")}
    assert {"attnfix.pth", "attnfix/py.typed", "attnfix/kernels/compiled/manifest.json", *options} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"attnfix", "attnfix.pth", *(top for top in tops if top.endswith(".dist-info"))}


def test_torch_is_never_pulled_and_requirements_stay_three(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    required = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist")
    assert sorted(re.split(r"[!<>=\s]", line)[0] for line in required if "extra ==" not in line) == [
        "packaging",
        "rich",
        "wrapt",
    ]


def test_the_wheel_is_as_small_as_the_readme_says(wheels):
    text = " ".join((environments.ROOT / "README.md").read_text().split())
    to_download, installed = re.search(r"under ([\d.]+) MB to download, under ([\d.]+) MB installed", text).groups()
    archive = zipfile.ZipFile(wheels[0])
    assert wheels[0].stat().st_size < float(to_download) * 1e6
    assert sum(each.file_size for each in archive.infolist()) < float(installed) * 1e6


def test_the_bills_of_materials_are_valid_and_list_each_compiled_kernel(wheels):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    for wheel, named in zip(wheels, ("attnfix", "attnfix-prove")):
        archive = zipfile.ZipFile(wheel)
        (name,) = [name for name in archive.namelist() if "/sboms/" in name]
        text = archive.read(name).decode()
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        about = json.loads(text)["metadata"]["component"]
        listed = {part["name"]: part["hashes"][0]["content"] for part in about.get("components", ())}
        compiled = [name for name in archive.namelist() if name.startswith("attnfix/kernels/compiled/")]
        assert listed == {name: hashlib.sha256(archive.read(name)).hexdigest() for name in compiled}
        assert about["name"] == named and bool(listed) == (wheel == wheels[0])


# Two wheels


def modules(wheel) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("attnfix/") and name.endswith(".py")}


def test_each_module_is_in_one_wheel_and_the_lab_in_its_own(wheels):
    folders = {"attnfix": "attnfix", **{f"attnfix/{name}": name for name in ("compat", "patches", "kernels")}}
    written = {
        f"{package}/{path.relative_to(environments.ROOT / folder).as_posix()}"
        for package, folder in folders.items()
        for path in (environments.ROOT / folder).rglob("*.py")
    }
    serving, lab = map(modules, wheels)
    assert not serving & lab and serving | lab == written - {"attnfix/kernels/build.py"}
    assert {name for name in written if re.search(r"/lab/|/prove/|/releases/|/proof\.py$", name)} == lab


def test_both_wheels_have_one_version_and_need_it_of_each_other(wheels):
    about = []
    for wheel in wheels:
        archive = zipfile.ZipFile(wheel)
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about.append(Parser().parsestr(archive.read(name).decode()))
    serving, lab = about
    assert serving["Version"] == lab["Version"]
    assert lab.get_all("Requires-Dist") == [f"attnfix=={serving['Version']}"]
    needed = [line for line in serving.get_all("Requires-Dist") if line.startswith("attnfix-prove")]
    assert needed == [f'attnfix-prove=={serving["Version"]}; extra == "{extra}"' for extra in ("prove", "cpu")]


EVERY_MODULE = """
import importlib, pkgutil, attnfix

def refuse(name):
    raise
names = [found.name for found in pkgutil.walk_packages(attnfix.__path__, "attnfix.", onerror=refuse)]
for name in names:
    if name != "attnfix.__main__":
        importlib.import_module(name)
print(len(names))
"""


def test_without_the_lab_every_module_is_imported_and_every_other_command_works(wheel, tmp_path):
    environment = environments.bare(tmp_path / "env")
    environments.install(environment, wheel)
    environments.add_engine(environment, "sglang", "0.5.9")
    assert int(environment.run("-c", EVERY_MODULE).stdout) > 200
    commands = "", "list", "status", "explain sglang.zero-kv-rows", "forecast sglang", "verdict sglang==0.5.9", "prove --help"
    for words in commands:
        assert environment.run("-m", "attnfix", *words.split()).returncode == 0, words
    (tmp_path / "config.json").write_text('{"architectures": ["DeepseekV2ForCausalLM"]}')
    told = json.loads(environment.run("-m", "attnfix", "doctor", str(tmp_path), "--gpu", "b200", "--json", check=False).stdout)
    assert told["release"] == "0.5.9"


def test_one_wheel_is_upgraded_and_removed_beside_the_other(wheels, tmp_path):
    environment = environments.bare(tmp_path / "env")
    before = {path.relative_to(environment.folder) for path in environment.folder.rglob("*")}
    package = environment.site / "attnfix"

    def here():
        return {path.relative_to(environment.site).as_posix() for path in package.rglob("*.py")}

    serving, lab = map(modules, wheels)
    environments.install(environment, *wheels)
    for wheel in (*wheels, wheels[0]):
        environments.install(environment, wheel)  # removes what was there, as an upgrade does
        assert here() == serving | lab
    assert environment.run("-c", "import attnfix.prove.command, attnfix.patches.sglang.zero_kv_rows.proof").returncode == 0
    pip(environment, "uninstall", "--yes", "--quiet", "attnfix-prove")
    assert here() == serving and environment.run("-m", "attnfix", "list").returncode == 0
    environments.install(environment, wheels[1])
    pip(environment, "uninstall", "--yes", "--quiet", "attnfix")
    assert here() == lab and not (environment.site / "attnfix.pth").exists()
    pip(environment, "uninstall", "--yes", "--quiet", "attnfix-prove")
    left = {path.relative_to(environment.folder) for path in environment.folder.rglob("*")} - before
    assert not [path for path in left if "attnfix" in str(path)], left


def test_every_cubin_of_the_installed_wheel_holds_its_kernels_for_its_architecture(wheel, tmp_path):
    environment = environments.bare(tmp_path / "env")
    environments.install(environment, wheel)
    compiled = environment.site / "attnfix" / "kernels" / "compiled"
    cubins = {path.name: elf.read_cubin(path) for path in compiled.glob("*.cubin")}
    assert set(cubins) == {f"{kernel}.sm_{number}.cubin" for kernel in KERNELS for number in ARCHITECTURES}
    for name, cubin in cubins.items():
        kernel, architecture, _ = name.split(".")
        assert cubin.machine == elf.EM_CUDA and f"sm_{cubin.arch}" == architecture
        assert any(entry.startswith(kernel) for entry in cubin.kernels), name


def test_the_wheel_holds_the_code_that_its_sources_give(wheel):
    """Built in another environment, from another folder, to the byte what this checkout compiles to."""
    from attnfix.kernels import driver

    archive, folder = zipfile.ZipFile(wheel), "attnfix/kernels/compiled/"
    held = {name.removeprefix(folder): archive.read(name) for name in archive.namelist() if name.startswith(folder)}
    assert held == {path.name: path.read_bytes() for path in driver.COMPILED.iterdir()}


CONSUMER = """
import torch

import attnfix
from attnfix.kernels import fixup_zero_kv_rows, kernel_status, merge_attn_states

attnfix.activate()
installed: list[str] = [row["fix"] for row in attnfix.status() if row["state"] == "installed"]
out, lse, offsets = torch.ones(4, 2, 64), torch.ones(4, 2), torch.tensor([0, 4])
fixup_zero_kv_rows(out, lse, torch.tensor([0]), offsets)
fixup_zero_kv_rows(out, lse, None, offsets, cum_kv_lens=offsets)
merge_attn_states(out, out, lse.t(), torch.ones(4, 2, 64), torch.ones(2, 4), None, 2, lse_base=2)
path: str = kernel_status()["merge_attn_states"]["path"]
"""
MISUSE = """
from attnfix.kernels import fixup_zero_kv_rows

fixup_zero_kv_rows([0.0], "lse", kv_lens=3)
"""


def mypy(folder, *arguments, **environment):
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "mypy-cache"), *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)


def test_the_package_of_both_wheels_passes_type_checks(wheels, tmp_path):
    unpacked = tmp_path / "unpacked"  # errors in an installed package are not reported
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(unpacked)
    checks = ("--config-file", str(environments.ROOT / "pyproject.toml"), "-p", "attnfix")
    shutil.copytree(environments.ROOT / "scripts", unpacked / "scripts")  # these see the types of the package, too
    checks += ("-p", "scripts")
    done = mypy(tmp_path, *checks, MYPYPATH=str(unpacked))
    assert done.returncode == 0, done.stdout + done.stderr
    strict = {f"attnfix/{path.parent.name}" for path in unpacked.glob("attnfix/*/__init__.py")} - {"attnfix/patches"}
    strict |= {"scripts/ledger", "scripts/pages"}
    for package in strict:
        (unpacked / package / "untyped.py").write_text("def untyped(x): return x\n")
    found = mypy(tmp_path, *checks, MYPYPATH=str(unpacked)).stdout
    assert set(re.findall(r"(\w+/\w+)/untyped\.py:1: error: .*\[no-untyped-def\]", found)) == strict, found


def test_a_program_is_checked_against_the_types_of_the_installed_wheel(wheel, tmp_path):
    environment = environments.bare(tmp_path / "env")
    environments.install(environment, wheel)
    (tmp_path / "consumer.py").write_text(CONSUMER)
    (tmp_path / "misuse.py").write_text(MISUSE)
    strict = ("--strict", "--config-file", os.devnull, "--python-executable", environment.python)
    fit = mypy(tmp_path, *strict, "consumer.py")
    assert fit.returncode == 0, fit.stdout + fit.stderr
    unfit = mypy(tmp_path, *strict, "misuse.py")
    assert unfit.returncode == 1 and "[arg-type]" in unfit.stdout and "[call-arg]" in unfit.stdout, unfit.stdout + unfit.stderr


def pip(environment, *arguments):
    command = [sys.executable, "-m", "pip", "--python", environment.python, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.mark.parametrize("editable", [False, True], ids=["install", "editable"])
def test_install_activates_itself_and_uninstall_leaves_nothing(tmp_path, editable):
    environment = environments.bare(tmp_path / "env")
    before = {path.relative_to(environment.folder) for path in environment.folder.rglob("*")}
    tree = str(environments.source_tree(tmp_path))
    source = ["-e", tree] if editable else [tree]
    # Build requirements are those installed here: another test builds in isolation
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", environment.python, "install", "--quiet", "--no-deps",
         "--no-build-isolation", *source],
        check=True, capture_output=True,
            )  # fmt: skip
    assert (environment.site / "attnfix.pth").is_file()
    look = (
        "import sys; print('attnfix.bootstrap.import_hook' in sys.modules); import attnfix.kernels, attnfix.patches.catalogue"
        + ("; import attnfix.prove.command, attnfix.patches.sglang.zero_kv_rows.proof" if editable else "")
    )
    assert environment.run("-c", look).stdout.strip() == "True"
    pip(environment, "uninstall", "--yes", "--quiet", "attnfix")
    left = {path.relative_to(environment.folder) for path in environment.folder.rglob("*")} - before
    assert not [path for path in left if "attnfix" in str(path)], left
    assert environment.run("-c", "import sys; print('attnfix.bootstrap.import_hook' in sys.modules)").stdout.strip() == "False"


def test_sdist_builds_a_wheel_in_isolation(tmp_path):
    """As on a user's machine: build requirements come from the index, nothing of this environment is used. The archive has
    what the second wheel is made of, too."""
    tree = environments.source_tree(tmp_path)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(tmp_path), str(tree)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
    (project,) = (tmp_path / "unpacked").glob("*/prove")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(project)]
    subprocess.run(command, check=True, capture_output=True)
    (lab,) = tmp_path.glob("attnfix_prove-*.whl")
    assert "attnfix/patches/sglang/zero_kv_rows/proof.py" in modules(lab)
    assert "attnfix.pth" in names
    for kernel in KERNELS:
        for architecture in ARCHITECTURES:
            assert f"attnfix/kernels/compiled/{kernel}.sm_{architecture}.cubin" in names


def test_a_build_that_cannot_compile_fails(tmp_path):
    """No wheel without kernels: a broken source ends the build."""
    tree = environments.source_tree(tmp_path)
    source = tree / "kernels" / "csrc" / "fixup_zero_kv_rows.cu"
    source.write_text(source.read_text() + "\nnot C++\n")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    done = subprocess.run([*command, str(tree)], capture_output=True, text=True)
    assert done.returncode != 0 and "fixup_zero_kv_rows" in done.stdout + done.stderr
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.parametrize("engine, release", [("sglang", "0.5.10.post1"), ("vllm", "0.19.1")])
def test_an_install_beside_an_engine_moves_none_of_its_pins(wheel, tmp_path, engine, release):
    """With every requirement of the engine as a constraint, pip still finds what attnfix needs."""
    import json

    from packaging.requirements import Requirement

    from attnfix.compat.releases import fetch

    metadata = next(fetch.fetch(engine, release).glob("*.dist-info/METADATA")).read_text(errors="replace")
    required = map(Requirement, Parser().parsestr(metadata).get_all("Requires-Dist"))
    pins = [f"{r.name}{r.specifier}" for r in required if (r.marker is None or r.marker.evaluate({"extra": ""})) and not r.url]
    constraints = tmp_path / "engine.txt"
    constraints.write_text("\n".join(pins))
    environment = environments.bare(tmp_path / "env")
    (environment.site / "engine-requirements.pth").unlink()
    report = tmp_path / "report.json"
    pip(environment, "install", "--dry-run", "--quiet", "--report", str(report), "-c", str(constraints), str(wheel))
    installed = {item["metadata"]["name"].lower() for item in json.loads(report.read_text())["install"]}
    assert {"attnfix", "rich", "packaging", "wrapt"} <= installed
    assert installed <= {"attnfix", "rich", "packaging", "wrapt", "markdown-it-py", "mdurl", "pygments"}
