"""Bugs of published releases that no fix corrects: `KnownBug` in compat/known_bug.py says what each file declares."""
