"""What stands behind `domain/expressions.py`, which is all that other modules import."""
