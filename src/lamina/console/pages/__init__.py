"""The pages, by group: each takes a request, makes a view and fills a template."""
