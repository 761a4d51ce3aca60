"""The service: trained runs asked for plans over HTTP. It needs the extra `serve`.

- `settings`: what an operator decides, among it every limit
- `wire`: requests and answers as they are in JSON; `problems`: errors as RFC 9457 documents
- `models`: the opened runs and data sets, found by name and horizon
- `asked`: from a request to a search that may begin, or a refusal
- `engine`: searches off the event loop, in a bounded queue; `uploads`: pictures and videos, encoded
  in a process of their own
- `door`: what every request passes: its id, its log line, who may come in, how much it may send
- `app`: all of it together, `create_app`; `process`: the server, from the first socket to the last
  answer

The modules are imported where they are used, so that `cefito serve --help` needs none of them.
"""
