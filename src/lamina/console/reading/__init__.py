"""What the files of pipelines say, read for the page. Damage in one part leaves the others."""
