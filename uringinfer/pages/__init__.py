"""Reports as one HTML file each: nothing is fetched, nothing is run, light and dark.

`run_page` puts a page together, `charts` draws its SVG, `style` has its colours. A page shows
measurements; it does not make any.
"""
