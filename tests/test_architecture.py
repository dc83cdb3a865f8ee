"""How the modules hang together: order of imports, what the engine needs, the public surface."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lazyknife

ROOT = Path(lazyknife.__file__).parent

# The order of the data: a module imports only from the lines above its own.
LAYERS: list[tuple[str, ...]] = [
    ("records",),
    ("checks", "files", "machine", "progress", "roots"),
    ("losses",),
    ("networks", "symmetric", "descent", "rounding"),
    ("intervals",),
    ("metrics",),
    ("accountant",),
    ("privacy", "rowwise"),
    ("base",),
    ("refits",),
    ("tangent",),
    ("loo",),
    ("primal", "newton"),
    ("factors",),
    ("scales", "folds", "full", "system"),
    ("noise",),
    ("readout",),
    ("guard",),
    ("lazy",),
    ("certificate",),
    ("scaling", "inputs"),
    ("regressor",),
    ("estimators", "baselines"),
    ("audit",),
    ("plots", "datasets", "tables"),
    ("study",),
    ("report",),
    ("cli",),
]
LAYER_OF = {name: layer for layer, names in enumerate(LAYERS) for name in names}
ENGINE = ("tangent", "loo", "primal", "readout", "lazy", "intervals", "networks", "records")
BLOCKED = ("scipy", "sklearn", "opacus", "dp_accounting", "pandas", "matplotlib", "rich")


def source_files() -> dict[str, Path]:
    """Dotted names inside the package, ``base.dpsgd``, with their files."""
    files = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:  # the package itself loads its names when they are used
            files[name] = path
    return files


FILES = source_files()


def imports(name: str, source: str, is_package: bool) -> set[str]:
    """Modules of the package that a module's top-level statements import."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found |= {n.removeprefix("lazyknife.") for n in names if n.startswith("lazyknife")}
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".") if node.module else []
            if node.level:
                target = [*package[: len(package) + 1 - node.level], *module]
            elif module[0] == "lazyknife":
                target = module[1:]
            else:
                continue
            for alias in node.names:
                inner = ".".join([*target, alias.name])
                found.add(inner if inner in FILES else ".".join(target))
    return found


GRAPH = {
    name: imports(name, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    for name, path in FILES.items()
}


def unit(name: str) -> str:
    return name.split(".")[0]


def out_of_order(name: str, imported: set[str]) -> list[str]:
    """Imports from another part of the package that is not in an earlier layer."""
    return sorted(
        other
        for other in imported
        if unit(other) != unit(name) and LAYER_OF.get(unit(other), 99) >= LAYER_OF[unit(name)]
    )


@pytest.mark.parametrize("name", FILES)
def test_imports_flow_in_the_order_of_the_data(name: str) -> None:
    assert unit(name) in LAYER_OF, f"{name} is new: give it a place in LAYERS of this test"
    wrong = out_of_order(name, GRAPH[name])
    assert not wrong, f"{name} imports {wrong}, which stand at or below it in LAYERS"


def test_there_are_no_import_cycles() -> None:
    tuple(TopologicalSorter(GRAPH).static_order())  # raises CycleError


def test_the_import_graph_is_read_from_the_source() -> None:
    assert {"machine", "loo", "networks", "tangent"} <= GRAPH["readout"]
    assert {"networks", "tangent.layers"} <= GRAPH["tangent.capture"]
    assert "tangent.capture" in GRAPH["tangent"]
    sample = "import lazyknife.base\nfrom . import loo\nfrom lazyknife.records import Base\n"
    assert imports("networks", sample, False) == {"base", "loo", "records"}
    assert out_of_order("networks", {"base", "loo", "records"}) == ["base", "loo"]


RUN_ENGINE = f"""
import sys
for name in {BLOCKED}:
    sys.modules[name] = None
import torch
from importlib import import_module
for name in {ENGINE}:
    import_module("lazyknife." + name)
from lazyknife.intervals import CONSTRUCTIONS, GENERAL
from lazyknife.estimators.step import LazyStep
from lazyknife.losses import Huber
from lazyknife.networks import build, mlp
from lazyknife.solve.readout import READOUTS
from lazyknife.tangent import Sketch, linearise

X = torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(20, 2)
y = X.sum(dim=1).sin()
tangent = linearise(build(mlp((4,)), X, seed=0), X)
for ridge in (1.0, "auto"):
    for readout, sketch in [*[(name, None) for name in READOUTS], ("tangent", Sketch(5))]:
        loo = LazyStep(ridge, readout=readout, sketch=sketch).models(tangent, X, y).loo
        for construction in GENERAL:
            _, lower, upper = CONSTRUCTIONS[construction].ends(loo, X, [2])
            assert (lower <= upper).all()
    for construction in ("full", "cv+"):
        loo = LazyStep(ridge, construction=construction).models(tangent, X, y).loo
        _, lower, upper = CONSTRUCTIONS[construction].ends(loo, X, [2])
        assert (lower <= upper).all()
    for score in ("leverage", "noise"):
        loo = LazyStep(ridge, widths=score).models(tangent, X, y).loo
        _, lower, upper = CONSTRUCTIONS["plus"].ends(loo, X, [2])
        assert (lower <= upper).all()
    loo = LazyStep(ridge, loss=Huber()).models(tangent, X, y).loo
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_engine_runs_on_numpy_and_torch_alone() -> None:
    finished = run(RUN_ENGINE)
    assert finished.returncode == 0, finished.stderr


def test_the_block_on_other_packages_works() -> None:
    finished = run(RUN_ENGINE + "\nimport lazyknife.data.inputs")
    assert finished.returncode != 0
    assert "sklearn" in finished.stderr


def test_the_public_names_are_listed_alike_everywhere() -> None:
    homes = {name: home for home, names in lazyknife._HOMES.items() for name in names}
    assert len(lazyknife.__all__) == len(set(lazyknife.__all__))
    assert set(lazyknife.__all__) == set(homes)
    assert set(dir(lazyknife)) == {*homes, "__version__"}

    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == homes


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lazyknife.nothing
