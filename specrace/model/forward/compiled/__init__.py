"""A decoder, compiled by numba, in which a row's result never depends on the other rows, whatever the dtype."""
