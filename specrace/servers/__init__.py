"""Running engines, reached over HTTP: their streams as lanes of a race, and their metrics."""
