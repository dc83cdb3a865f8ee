"""``python -m lazyknife.cli`` is the command ``lazyknife``."""

from . import main

main()
