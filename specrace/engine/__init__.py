"""The race: lanes, race time, the machine's pace, recordings. Drafters and models meet here, through protocols."""
