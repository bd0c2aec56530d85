"""What is shown of a race: frames for the page and the terminal, reels, text, colours, and the check of recordings."""
