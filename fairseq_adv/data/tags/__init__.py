"""Tagged words: files in columns, and the schemes that mark entities."""
