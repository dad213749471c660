"""Commands on the folders of runs: none of them starts one."""
