"""The drafters of other engines, reproduced: one file for each engine, with the engine's own option names.

Each drafter follows the source that its file cites; docs/twins.md says what is modelled and how it was compared. As
in the engines, the first draft comes after the first output token: the forward over the prompt verifies no draft.
"""
