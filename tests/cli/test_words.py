"""What to expect, in plain words."""

import pytest

from lazyknife import Plain, Public, certify
from lazyknife.cli.words import LIKE, expectation, percent, verdict

CERTIFIED = certify(n=100, alpha=0.1, base=Public())
FULL = certify(n=100, alpha=0.1, base=Public(), construction="full")
REFUSED = certify(n=100, alpha=0.1, base=Plain())
INFINITE = certify(n=5, alpha=0.1, base=Public())


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("certificate", "unlike", "words"),
    [
        (
            CERTIFIED,
            False,
            "Expect about 90 % of new values inside their intervals; guaranteed: at least 81 %, "
            "whatever the distribution.",
        ),
        (
            FULL,
            False,
            "Expect 90 % or more of new values inside their intervals; guaranteed: at least 90 %, "
            "whatever the distribution.",
        ),
        (
            CERTIFIED,
            True,
            "For rows like the training rows the intervals contain about 90 % of the values, "
            "guaranteed at least 81 %. These new rows do not look like them, so expect less.",
        ),
        (
            REFUSED,
            False,
            "The intervals aim at 90 % of new values, but no coverage is guaranteed.",
        ),
        (
            INFINITE,
            False,
            "The intervals are infinite: there are too few training rows for this level.",
        ),
    ],
)
def test_a_guarantee_in_words(certificate, unlike, words):
    assert plain(expectation(0.1, certificate, unlike)) == words


def test_what_is_guaranteed_is_rounded_down():
    assert certify(n=99, alpha=0.101, base=Public()).coverage == pytest.approx(0.8, abs=0.02)
    for n in (99, 120, 150, 500):
        certificate = certify(n=n, alpha=0.1, base=Public())
        said = plain(expectation(0.1, certificate)).partition("at least ")[2].partition(" %")[0]
        assert int(said) / 100 <= certificate.coverage < (int(said) + 1) / 100


def test_percents():
    assert [plain(percent(share)) for share in (0.9, 0.999, 0.05)] == ["90 %", "99.9 %", "5 %"]


def test_the_tone_follows_the_guarantee_and_the_rows():
    said = verdict(0.1, CERTIFIED, False, (0.914, 1234))
    assert said.tone == "certified"
    assert plain(said.details[0]) == (
        "Measured: 91.4 % of the 1,234 new rows, whose values are known, lie inside."
    )
    assert said.details[1] == LIKE
    assert verdict(0.1, CERTIFIED, True, None).tone == "doubtful"
    assert verdict(0.1, CERTIFIED, True, None).details == ()
    assert verdict(0.1, REFUSED, False, None).tone == "warning"
