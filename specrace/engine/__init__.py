"""The race: lanes, race time, the pace of the machine, recordings. Two protocols join drafters and models."""
