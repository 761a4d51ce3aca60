"""Live sessions asked over HTTP: by a test client, or over real connections with a token."""

from __future__ import annotations

import http.client
import json
import time

TOKEN = "0123456789abcdef-token"
LONG = 20  # seconds that nothing here should take
HEADERS = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}


def until(happened, seconds=60):
    """Wait until something has happened."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def begin(client, status=201, **body):
    response = client.post("/v1/sessions", json={"run": "run", **body})
    assert response.status_code == status, response.text
    return response.json()


def tell(client, state, status=200, **event):
    response = client.post(f"/v1/sessions/{state['id']}/events", json=event)
    assert response.status_code == status, response.text
    return response.json()


def late(state):
    """The answer to rows none of which is later than the last."""
    note = f"ignored: no row is later than the last, at {state['followed']['seconds']:g} s"
    return state | {"notes": [*state["notes"], note]}


def read(client, state, status=200, **parameters):
    response = client.get(f"/v1/sessions/{state['id']}", params=parameters)
    assert response.status_code == status, response.text
    return response.json()


def end(client, state):
    assert client.delete(f"/v1/sessions/{state['id']}").status_code == 204


def send(port, method, path, body=None, **headers):
    """An open connection and its answer, of which nothing is read yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, HEADERS | headers)
    return connection, connection.getresponse()


def sent(port, method, path, body=None, **headers):
    """Status and value of an answer."""
    connection, response = send(port, method, path, body, **headers)
    data = response.read()
    connection.close()
    return response.status, json.loads(data) if data else None


class Stream:
    """The events of a session."""

    def __init__(self, port, id_, **headers):
        self.connection, self.response = send(port, "GET", f"/v1/sessions/{id_}/events", **headers)
        assert self.response.status == 200
        assert self.response.headers["content-type"].startswith("text/event-stream")

    def block(self):
        """The next block of lines."""
        lines = []
        while (line := self.response.readline().decode()) not in ("", "\n"):
            lines.append(line.rstrip("\n"))
        return lines

    def event(self):
        """Id, name and data of the next event, after comments."""
        while (lines := self.block())[0].startswith(":"):
            pass
        fields = dict(line.split(": ", 1) for line in lines)
        return fields.get("id"), fields["event"], json.loads(fields["data"])

    def ends(self):
        """Whether the service closes it."""
        try:
            while self.response.readline():
                pass
        except (http.client.HTTPException, ConnectionError):
            pass
        self.connection.close()
        return True
