"""Reports of a run: Markdown, JSON, JUnit, and a comment on the pull request."""
