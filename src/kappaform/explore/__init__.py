"""An interactive page: the bound on the condition number, and its effects on an image."""

from kappaform.explore.exploration import explore as explore
from kappaform.explore.page import About as About
from kappaform.explore.page import page_of as page_of
