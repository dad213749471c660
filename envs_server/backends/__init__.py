"""Back ends that step many environments at once; each offers `build(recipe, num_envs)`."""
