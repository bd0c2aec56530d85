"""A decoder compiled by numba: rows' results do not depend on each other, whatever the dtype."""
