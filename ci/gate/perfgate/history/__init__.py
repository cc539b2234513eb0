"""The measurements of the main branch, commit by commit."""
