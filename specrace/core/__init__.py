"""What all folders share: draft trees, the verifiers, events, metrics, the cost curve. No library but numpy."""
