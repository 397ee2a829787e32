"""The page that `lamina ui` serves: pipelines and stores for people, from their files alone.

subjects   which pipelines are shown, and under which key in addresses
reading/   what their files say now: one look at a pipeline, its checkpoints, its state; with I/O
views/     what a page shows of that, as values; pure
drawing/   graphs, plots, lineage and heat maps as SVG; pure
pages/     one module a group of pages: from a request to a view to a template
guard      who may ask: host, origin, token; and the headers of every answer
jobs       work that takes longer than a page: verify, diff
live       what tells open pages that something has changed
app        all of it put together; serving runs it

It claims nothing and changes nothing, unless it is started with --allow-actions.
"""
