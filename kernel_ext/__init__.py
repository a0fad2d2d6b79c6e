"""What a notebook sees: magics, completion, display and widgets. The only package that knows Jupyter.

Importing it imports neither IPython nor ipywidgets; `%load_ext kstreams_repl` does, when a user asks for it.
"""
