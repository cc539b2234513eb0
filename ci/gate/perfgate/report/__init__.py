"""Reports of a run: Markdown, JSON, and a comment on the pull request."""
