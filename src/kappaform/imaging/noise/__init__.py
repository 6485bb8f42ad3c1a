"""Kinds of noise, and which of them an image has."""
