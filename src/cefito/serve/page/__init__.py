"""The pages of the service, made on the server, with one plain JavaScript file.

They load nothing from other origins, and look like reports.
"""
