"""The terminal: lines that come in, and how records and tables are printed."""
