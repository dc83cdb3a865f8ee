"""How settings are chosen: by every model on its own rows, or on rows set aside."""
