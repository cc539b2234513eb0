"""What continuous integration runs, and anybody may: main's history, the site. Imports neither myriad nor jax."""
