"""An interactive page: the bound on the condition number, and its effects on an image."""

from kappaform.explore.exploration import Exploration, View, explore
from kappaform.explore.page import About, page_of

__all__ = ["About", "Exploration", "View", "explore", "page_of"]
