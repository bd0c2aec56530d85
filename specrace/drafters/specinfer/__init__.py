"""SpecInfer: smaller models draft a tree together."""
