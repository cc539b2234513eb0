"""The static site of a repository's benchmark results. `python -m ci.site.build` makes it."""
