"""The structures in which drafters look up a context: n-gram counts, tries, suffix automata and suffix indexes."""
