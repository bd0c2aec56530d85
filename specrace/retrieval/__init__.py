"""Retrieval: reads documents, finds the passages that answer a question, and marks the evidence in them.

Nothing is imported here: faiss and sentence-transformers are loaded when an index or an embedder is first used.
"""
