"""A decoder compiled by numba, in which no row's result depends on the other rows, whatever the dtype."""
