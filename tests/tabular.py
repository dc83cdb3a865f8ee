"""Small tables, and the errors that they cause."""

import pandas as pd
import pytest

from lazyknife.errors import TableError


def refused(call, *words: str) -> str:
    """The message of the TableError that the call raises: one line that has all the words."""
    with pytest.raises(TableError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, f"{word!r} is not in {message!r}"
    return message


def frames(**columns) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Four training rows and two new rows of each column of six values, and a target."""
    whole = pd.DataFrame(columns)
    train, test = whole.iloc[:4].copy(), whole.iloc[4:].copy()
    train.insert(0, "y", [1.0, 2.0, 3.0, 4.0])
    return train, test
