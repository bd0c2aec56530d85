"""Retrieval: from files to the passages that answer a question, and the sentences in them that are its evidence.

Nothing is imported here: faiss and sentence-transformers are loaded when an index or an embedder is first used.
"""
