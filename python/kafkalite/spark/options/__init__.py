"""The options of queries: their rows, and what a query makes of them."""
