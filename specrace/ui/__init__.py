"""The page: its HTTP server, the worker that owns the model, and the browser's part. No other folder uses Gradio."""
