"""What drafters look things up in: n-gram counts, the n-gram trie, first occurrences. Ints in, ints out."""
