"""The stage as HTML: what the page and an exported race share, and races as files that play without a server."""
