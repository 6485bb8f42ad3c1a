"""Removal of noise from patches and from groups of similar patches."""
