"""The page at `/`: a form, plans as strips of steps, constraints; it asks the interface beside it.

The first view is made on the server; one plain JavaScript file does the rest, and asks nothing of
any other place. Its look is that of reports.
"""
