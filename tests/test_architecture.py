"""How the modules hang together: order of imports, what the engine needs, the public surface."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lazyknife

ROOT = Path(lazyknife.__file__).parent

# The order of the data: a part of the package imports only from the parts before its own.
# Names on one line do not import each other.
PARTS = [
    line.split()
    for line in (
        "records sentences errors files memory settings",
        *("compute", "data", "losses", "networks", "base", "tangent", "ridge", "choosing"),
        *("intervals", "shift", "certificate", "plots", "metrics", "report", "results"),
        *("distribution", "dask", "estimators", "scorers", "compare", "cli"),
    )
]
PLACE = {name: place for place, names in enumerate(PARTS) for name in names}
ENGINE = (
    *("tangent", "ridge.leave_one_out", "ridge.readout", "intervals", "networks"),
    "estimators.fit_network",
)
BLOCKED = ("scipy", "sklearn", "dp_accounting", "pandas", "matplotlib", "rich")


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


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements, those inside functions included, but for typing's own imports."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from statements(child)


def imports(name: str, source: str, is_package: bool) -> set[str]:
    """Modules of the package that a module imports, wherever in it."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    found = set()
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found |= {n.removeprefix("lazyknife.") for n in names if n.startswith("lazyknife")}
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
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


def part(name: str) -> str:
    return name.split(".")[0]


def out_of_order(name: str, imported: set[str]) -> list[str]:
    """Imports from another part of the package that does not come before."""
    return sorted(
        other
        for other in imported
        if part(other) != part(name) and PLACE.get(part(other), 99) >= PLACE[part(name)]
    )


@pytest.mark.parametrize("name", FILES)
def test_imports_flow_in_the_order_of_the_data(name: str) -> None:
    assert part(name) in PLACE, f"{name} is new: give it a place in PARTS of this test"
    wrong = out_of_order(name, GRAPH[name])
    assert not wrong, f"{name} imports {wrong}, which do not come before it in PARTS"


def test_there_are_no_import_cycles() -> None:
    tuple(TopologicalSorter(GRAPH).static_order())  # raises CycleError


def test_the_import_graph_is_read_from_the_source() -> None:
    assert {"compute", "ridge.rounding", "networks", "tangent"} <= GRAPH["ridge.readout"]
    assert "tangent.capture" in GRAPH["tangent.tangent"]
    sample = (
        "import lazyknife.base\nfrom .ridge import leave_one_out\n"
        "def f():\n    from lazyknife.records import Base\n"
        "if TYPE_CHECKING:\n    from .cli import app\n"
    )
    assert imports("networks", sample, False) == {"base", "ridge.leave_one_out", "records"}
    assert out_of_order("networks", {"base", "ridge.leave_one_out", "records"}) == [
        "base",
        "ridge.leave_one_out",
    ]


RUN_ENGINE = f"""
import sys
for name in {BLOCKED}:
    sys.modules[name] = None
import torch
from importlib import import_module
for name in {ENGINE}:
    import_module("lazyknife." + name)
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.losses import Huber
from lazyknife.networks import build, mlp
from lazyknife.ridge.readout import READOUTS
from lazyknife.tangent import EXACT, Sketch, linearise

X = torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(20, 2)
y = X.sum(dim=1).sin()
tangent = linearise(build(mlp((4,)), X, seed=0), X)
def check(ridge, *constructions, **settings):
    for name in constructions:
        kind = "plus" if len(constructions) > 2 else name
        loo = LazyStep(ridge, construction=kind, **settings).models(tangent, X, y)
        _, lower, upper = CONSTRUCTIONS[name].ends(loo, X, [2])
        assert (lower <= upper).all()
for ridge in (1.0, "auto"):
    for readout, sketch in [*[(name, EXACT) for name in READOUTS], ("tangent", Sketch(5))]:
        ways = ("plus", "minmax", "jackknife", "naive")
        check(ridge, *ways, readout=readout, features=sketch)
    check(ridge, "cv+")
    check(ridge, "plus", widths="leverage")
    check(ridge, "plus", loss=Huber())
check(1.0, "full")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_engine_runs_on_numpy_and_torch_alone_and_the_block_on_others_works() -> None:
    finished, blocked = map(run, (RUN_ENGINE, RUN_ENGINE + "\nimport lazyknife.data.rows"))
    assert finished.returncode == 0, finished.stderr
    assert blocked.returncode != 0
    assert "sklearn" in blocked.stderr


def test_the_public_names_can_be_had_and_no_others() -> None:
    assert len(lazyknife.__all__) == len(set(lazyknife.__all__))
    assert set(dir(lazyknife)) == {*lazyknife.__all__, "__version__"}
    for name in dir(lazyknife):
        assert getattr(lazyknife, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lazyknife.nothing
