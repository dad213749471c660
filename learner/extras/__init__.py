"""What a run can do without: Ray, grids of runs, comparisons."""
