"""Those who have no business with the UI: a page of another origin, and another user of the machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import psutil

OTHER_USER = 65534
LAUNCH = """
mutation { launchPipelineExecution(executionParams: {
  selector: {repositoryLocationName: "eventsync", repositoryName: "__repository__", jobName: "sync"},
  mode: "default", runConfigData: "{}"
}) { __typename } }
"""
SOCKET = """
([url]) => new Promise(resolve => {
  const opened = new WebSocket(url.replace('http', 'ws') + '/graphql', 'graphql-ws');
  opened.onopen = () => resolve('open');
  opened.onerror = () => resolve('error');
})
"""
ATTACK = f"""<!doctype html><title>Elsewhere</title><iframe name="answer"></iframe><script>
const ended = (element, ...names) => new Promise(resolve => names.forEach(name => {{
  element['on' + name] = () => resolve(name);
}}));
const submit = async (action, enctype, value) => {{
  const form = document.createElement('form');
  Object.assign(form, {{action, enctype, method: 'POST', target: 'answer'}});
  const field = document.createElement('input');
  Object.assign(field, {{name: '{{"query":' + JSON.stringify(value) + ', "rest":"', value: '"}}'}});
  form.append(field);
  document.body.append(form);
  const loaded = ended(document.querySelector('iframe'), 'load');
  form.submit();
  await loaded;
}};
const open = {SOCKET};
async function attack([ui, sandbox, query]) {{
  const url = ui + '/graphql?query=' + encodeURIComponent(query), body = JSON.stringify({{query}});
  const image = new Image(), shown = ended(image, 'load', 'error');
  image.src = url;
  const result = {{image: await shown}};
  for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {{
    await submit(url, enctype, query);
    await submit(sandbox + '/_sandbox/reset', enctype, query);
  }}
  for (const kind of ['text/plain', 'text/plain; application/json'])
    for (const address of [url, ui + '/graphql', sandbox + '/_sandbox/reset'])
      await fetch(address, {{mode: 'no-cors', method: 'POST', headers: {{'Content-Type': kind}}, body}});
  result.socket = await open([ui]);
  const asked = {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body}};
  result.read = await fetch(ui + '/graphql', asked).then(answer => answer.status, error => error.name);
  return result;
}}
</script>"""
REACH = """
import json, socket, sys
def reached(family, address):
    client = socket.socket(socket.AF_UNIX if family == 'unix' else socket.AF_INET)
    client.settimeout(10)
    return client.connect_ex(address if family == 'unix' else (address[0], int(address[1]))) == 0
print(json.dumps([door for door in json.loads(sys.argv[1]) if reached(*door)]))
"""
LAUNCHES = """
import json, sys, urllib.request
url, asked = json.loads(sys.argv[1])
query = 'mutation Launch($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) { __typename } }'
def launched(params):
    body = json.dumps({'query': query, 'variables': {'params': params}}).encode()
    request = urllib.request.Request(url + '/graphql', body, {'Content-Type': 'application/json'})
    return json.load(urllib.request.urlopen(request))['data']['launchPipelineExecution']['__typename']
print(json.dumps([*map(launched, asked)]))
"""


@contextmanager
def site(page: str) -> Iterator[int]:
    """Serve one page at every path of a loopback port; yield the port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.05), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def listening(pid: int) -> list[tuple[str, Any]]:
    """The sockets that a process and its children listen at: TCP on any address, and Unix sockets with a path or a name."""
    found = []
    for process in (parent := psutil.Process(pid), *parent.children(recursive=True)):
        for one in process.net_connections("all"):
            if one.family == socket.AF_UNIX and one.laddr:
                found.append(("unix", str(one.laddr)))
            elif one.status == psutil.CONN_LISTEN:
                found.append(("tcp", [one.laddr.ip, str(one.laddr.port)]))
    return found


def as_another_user(script: str, asked: object) -> Any:
    """Run a script as another user, with JSON as its argument; return what it prints."""
    command = [os.path.realpath(sys.executable), "-I", "-c", script, json.dumps(asked)]
    rights: dict[str, Any] = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
    done = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, check=False, timeout=120, **rights)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
