"""Videos of episodes. `render` of an environment draws one state."""
