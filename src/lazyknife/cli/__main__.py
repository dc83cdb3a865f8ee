"""``python -m lazyknife.cli`` is the command ``lazyknife``."""

from .app import main

main()
