"""The command ``lazyknife``, which ``app`` assembles; its modules import no torch until they run."""
