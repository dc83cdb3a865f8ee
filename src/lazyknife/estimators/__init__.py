"""The estimators: where the stages meet."""
