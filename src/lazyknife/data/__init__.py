"""From the caller's rows to tensors, without a leak."""
