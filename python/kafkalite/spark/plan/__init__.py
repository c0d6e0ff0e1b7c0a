"""Which ranges of offsets a query reads, decided before any of its tasks starts."""
