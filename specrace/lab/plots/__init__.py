"""Pictures of a sweep and of the paper's tables: figures with intervals, drawn as SVG and PNG, and as CSV."""
