"""The changes between two releases of an engine in the code that decides attention: candidates for bugs that were mended."""
