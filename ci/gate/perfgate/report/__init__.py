"""What a run found, as Markdown, JSON and JUnit, and as a comment on a pull request."""
