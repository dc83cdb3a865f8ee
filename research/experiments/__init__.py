"""The experiments behind pages of docs/; each module's ``main`` writes rows, figures, tables."""
