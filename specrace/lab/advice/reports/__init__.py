"""A recommendation as one file to hand on, in HTML or Markdown."""
