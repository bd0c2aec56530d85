"""The page: a front door, one worker that owns the model, and frames for the browser. Gradio lives here only."""
