"""Events as something to look at: frames for a page, a reel for replay, text, and the audit of recordings."""
