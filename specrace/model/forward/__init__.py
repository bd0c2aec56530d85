"""The ways to run one forward: eager, scripted, compiled, or as a graph, over a KV cache and a token tree."""
