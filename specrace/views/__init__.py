"""The views of a race: frames, reels, headlines, texts and colours; and the check of recordings."""
