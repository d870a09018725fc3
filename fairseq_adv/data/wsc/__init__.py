"""Winograd schemas: SuperGLUE's WSC, GLUE's WNLI converted to it, and their mini-batches."""
