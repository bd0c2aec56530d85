"""The drafters that inference engines ship, reproduced: one file an engine, with the engine's own option names.

Each follows its source, cited in the file; docs/engines.md has what is modelled and how it was compared. As in the
engines, the first draft comes after the first output token: the forward over the prompt carries none.
"""
