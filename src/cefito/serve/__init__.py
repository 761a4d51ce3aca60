"""The service: plans of trained runs over HTTP. It needs the extra `serve`.

`app` has all routes, `service` the life of a request; `cefito serve --help` imports none of them.
"""
