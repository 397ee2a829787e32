"""Pictures as SVG: a layered graph, plots, lineage, heat maps. Pure: values in, markup out."""
