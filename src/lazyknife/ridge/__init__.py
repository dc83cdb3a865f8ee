"""From tangent features and targets to all leave-one-out models."""
