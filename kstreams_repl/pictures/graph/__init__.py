"""The picture of a topology: shapes and links, their layout, SVG and Graphviz' text.

In: a topology and marks. Out: a `Picture`, its SVG, MIME bundles. Read first: `picture`, then `svg`.
"""
