"""The drafters that draft with nothing but a trained head."""
