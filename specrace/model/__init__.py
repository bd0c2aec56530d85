"""The target model: loading, KV cache, forwards over trees, sampling, graphs, several devices. Home of torch."""
