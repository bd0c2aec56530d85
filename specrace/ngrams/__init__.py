"""What drafters match the context in: n-gram counts, tries and suffix structures. Token ids only, no drafter known."""
