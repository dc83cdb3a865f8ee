"""Files for the command."""

import shutil

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """40 training rows and 20 new ones, the target in thousands, and files that will not do."""
    made = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["y"] = 1000 * (X @ [1, -1, 0.5] + 0.3 * rng.normal(size=60))
    frame[:40].to_csv(made / "train.csv", index=False)
    frame[40:].to_csv(made / "test.csv", index=False)
    frame.to_csv(made / "all.csv", index=False)
    mixed = frame.assign(
        name=[f"r{i}" for i in range(60)],
        group=rng.choice(["u", "v"], 60),
        code=rng.choice([1, 2, 3], 60),
        gap=np.where(np.arange(60) % 7, X[:, 0], np.nan),
    )
    mixed[:40].to_csv(made / "mixed_train.csv", index=False)
    mixed[40:].to_csv(made / "mixed_test.csv", index=False)
    (made / "empty.csv").touch()
    (made / "header.csv").write_text("a,b,c,y\n")
    (made / "binary.csv").write_bytes(bytes(range(256)))
    (made / "folder").mkdir()
    frame[:2].to_csv(made / "two.csv", index=False)
    frame[:5].to_csv(made / "five.csv", index=False)
    frame[40:].rename(columns={"a": "z"}).to_csv(made / "other.csv", index=False)
    mixed[40:].assign(group="q").to_csv(made / "unseen.csv", index=False)
    return made


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    """A working folder with the files."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
