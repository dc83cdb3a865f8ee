"""The table of real data sets, and the loaders that read it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from lazyknife.data.checks import check_choice
from lazyknife.data.scaling import symlog

from .ahrq import read_2016, read_panel21
from .files import DataNotFound, find_copy, locate
from .published import PUBLISHED
from .record import Archive, Copy, DataSet, Entry, read_only
from .tables import TABLES
from .uci import COMMUNITIES_NAMES_FILE, read_blog_feedback, read_communities

TRANSFORMS = {"symlog": symlog}  # those that look at no data

_UCI_TERMS = "CC BY 4.0"
_MEPS_TERMS = (
    "MEPS public-use data-use agreement: statistical use only, no attempt to identify anyone, "
    "cite AHRQ/MEPS"
)

DATASETS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="blog_feedback",
            title="BlogFeedback",
            rows=52397,
            columns=280,
            response="log(1 + comments)",
            publisher="K. Buza, UCI Machine Learning Repository, dataset 304",
            terms=_UCI_TERMS,
            url="https://archive.ics.uci.edu/static/public/304/blogfeedback.zip",
            archive=Archive(
                ("blogData_train.csv",),
                "sha256:1ba74e5ad920f7cd037502b2968581cc695146a226a73eff52fe8ad875ed4bcf",
                most_mb=200,
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
            read=read_blog_feedback,
        ),
        Entry(
            name="communities",
            title="Communities and Crime",
            rows=1994,
            columns=99,
            response="violent crimes per head, scaled to 0..1",
            publisher="M. Redmond, UCI Machine Learning Repository, dataset 183",
            terms=_UCI_TERMS,
            url="https://archive.ics.uci.edu/static/public/183/communities+and+crime.zip",
            archive=Archive(("communities.data", COMMUNITIES_NAMES_FILE)),
            copies=(
                Copy(
                    "communities_and_crime.csv.gz",
                    "sha256:a4e5c6388be9e0fb726ed83110e2e34c8a791af93bba9a0f32a62084d349eed8",
                ),
                Copy(
                    "communities.data",
                    "git:470fc828aae4ed2c474700d9f5beea6c4480214e",
                    beside=(COMMUNITIES_NAMES_FILE,),
                ),
            ),
            read=read_communities,
        ),
        Entry(
            name="meps_2016",
            title="MEPS 2016",
            rows=33005,
            columns=107,
            response="log(1 + utilisation)",
            publisher="Agency for Healthcare Research and Quality, MEPS HC-192",
            terms=_MEPS_TERMS,
            url="https://meps.ahrq.gov/mepsweb/data_files/pufs/h192ssp.zip",
            archive=Archive(("h192.ssp",), most_mb=400),
            copies=(
                Copy("meps_data.txt", "git:3adb71d68fb324a4eebbbcd65ba6d0d837ceb685"),
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
            name="meps_2016_panel21",
            title="MEPS 2016 panel 21",
            rows=15670,
            columns=139,
            response="log(1 + utilisation)",
            publisher="Agency for Healthcare Research and Quality, MEPS HC-192, panel 21, "
            "another derivation than the papers'",
            terms=_MEPS_TERMS,
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

    Parameters
    ----------
    name
        A key of ``DATASETS``.
    transform
        None, or ``"symlog"`` to map X by ``lazyknife.symlog``.

    Returns
    -------
    DataSet
        X has shape (rows, columns) as in ``DATASETS[name]``, y has shape (rows,).

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
    return DataSet(
        name=entry.name,
        X=read_only(X if transform is None else TRANSFORMS[transform](X)),
        y=read_only(y),
        feature_names=names,
        target=entry.response,
        transform=transform,
        title=entry.title,
    )


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
