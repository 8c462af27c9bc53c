"""Import and export of other tools' files."""
