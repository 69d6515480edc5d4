"""The engine of veri-jupyter: it launches training *from* a Jupyter kernel (it starts no kernels).

Everything that a job needs without a notebook: what a job is (``spec``), how it will run (``planner``, ``facts``),
what it reads (``data``, ``preflight``), who starts it (``launcher``), what each rank does (``worker``), and the files
in which they meet (``protocol``).
"""

__version__ = "0.1.0"
