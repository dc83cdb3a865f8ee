"""The command ``lazyknife``, which ``app`` assembles; it loads torch only when it runs."""
