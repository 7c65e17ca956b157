"""The queue under a virtual clock: the production scripts and policies against modelled backends, beside other ways."""
