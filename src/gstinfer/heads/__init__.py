"""Raw tensors of a network -> results, one file per family, and how a family is decided."""
