"""The service: plans of trained runs over HTTP. It needs the extra `serve`.

- `settings`: settings of the operator, among them all limits
- `schemas`: requests and answers in JSON; `problems`: errors as RFC 9457 documents
- `models`: the opened runs and data sets, found by name and horizon
- `requests`: from a request to its search, and from its plans to an answer
- `scheduler`: searches off the event loop, in a bounded queue; `uploads`: pictures and videos,
  encoded in a process of their own
- `middleware`: access, limits, log and counters of every request
- `service`: the life of a request; `app`: all routes, `create_app`; `page`: the pages for people
- `process`: the server process

`cefito serve --help` imports none of them.
"""
