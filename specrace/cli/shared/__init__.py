"""What several commands share: arguments and what they describe, the terminal, tables, questions."""
