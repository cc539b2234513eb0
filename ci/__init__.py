"""What continuous integration runs and you can run too. Imports neither the package nor jax."""
