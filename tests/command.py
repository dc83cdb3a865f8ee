"""Run the command ``lazyknife`` in this process."""

import re

import pandas as pd
from typer.testing import CliRunner

from lazyknife.cli.app import app

PUBLIC = ("--base", "public")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr or result.exception
    assert result.stderr == ""
    return result.stdout


def fail(*arguments, code=2):
    """Return the one line that says what is wrong."""
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


def predict(*options, train="train.csv", test="test.csv", output="out.csv", base=PUBLIC):
    """Arguments of the command; options that stand twice take their last value."""
    target = () if "--target" in options else ("--target", "y")
    return ("predict", train, test, *target, "--output", output, *base, *options)


def intervals_of(*options, **files):
    printed = succeed(*predict(*options, **files))
    return pd.read_csv("out.csv"), printed


def in_shell(text):
    """A certificate's words as the command spells them."""
    return text.replace("construction='full'", "--construction full")


def check_self_contained(page):
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert not re.search(r"""(src|href)=["'](?!#|data:)|@import|url\((?!#)""", page)
