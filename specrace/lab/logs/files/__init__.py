"""Files of logs: which belong together, how they are packed, and the rows in them."""
