"""Commands on the files of a log, with or without a broker beside them."""
