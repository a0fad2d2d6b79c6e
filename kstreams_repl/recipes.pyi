import builtins

from kstreams_repl.repl.doc_search import search as search
from kstreams_repl.repl.recipe_notebooks import (
    Notebook as Notebook,
)
from kstreams_repl.repl.recipe_notebooks import (
    list as list,
)
from kstreams_repl.repl.recipe_notebooks import (
    open as open,
)

__all__: builtins.list[str]
