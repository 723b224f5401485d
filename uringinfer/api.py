"""The public functions: load, pack, verify, plan, probe. The command line and the server use only these."""
