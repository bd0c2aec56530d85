"""Our drafters inside other engines: one file an engine. No model library is imported."""
