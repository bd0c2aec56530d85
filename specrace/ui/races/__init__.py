"""Races on the server: the request, the queue, the worker, and the stream of events."""
