"""Winograd schemas: SuperGLUE's WSC, GLUE's WNLI through it, and their mini-batches."""
