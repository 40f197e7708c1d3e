"""A small OpenAI-compatible server in this process that answers sums, and fails when a test asks for it."""

import json
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "org/adder"


class Server:
    """A server on a free port of this machine that answers sums by OpenAI's protocol, for models in `models`.

    What it was asked is collected in `asked` (bodies), `keys` (Authorization headers) and `paths`. `troubles` is a
    queue of replies other than an answer: ``hang up``, ``cut``, (status, content[, headers]), or a function of the
    answer. `refusal` is a function that makes such a reply from the body when the queue is empty.
    """

    def __init__(self):
        self.asked, self.keys, self.paths, self.troubles, self.most_at_once = (
            [],
            [],
            [],
            [],
            0,
        )
        self.pause, self.pauses = 0.0, []
        self.models = {MODEL: 3}  # model -> n: every n-th answer is wrong
        self.refusal = lambda body: None
        outer, running, lock = self, Counter(), threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            # HTTP/1.1 keeps connections open, as real servers do.
            protocol_version = "HTTP/1.1"

            def reply(self, status, content, **headers):
                body = (
                    content if isinstance(content, bytes) else json.dumps(content).encode()
                )
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                outer.keys.append(self.headers.get("Authorization"))
                outer.paths.append(self.path)
                if self.path.partition("?")[0] == "/v1/models":
                    entries = [{"id": it, "root": "weights/adder"} for it in outer.models]
                    self.reply(200, {"data": entries})
                else:
                    self.reply(404, {"detail": "Not Found"})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    running["now"] += 1
                    outer.most_at_once = max(outer.most_at_once, running["now"])
                    outer.asked.append(body)
                    outer.keys.append(self.headers.get("Authorization"))
                    outer.paths.append(self.path)
                    trouble = (
                        outer.troubles.pop(0) if outer.troubles else outer.refusal(body)
                    )
                    pause = outer.pauses.pop(0) if outer.pauses else outer.pause
                answer = completion(body, outer.models[body["model"]])
                # Outside the lock, so that requests wait side by side.
                time.sleep(pause)
                with lock:
                    running["now"] -= 1
                if trouble in ("hang up", "cut"):
                    if trouble == "cut":
                        self.send_response(200)
                        self.send_header("Content-Length", "1000")
                        self.end_headers()
                        self.wfile.write(b'{"choices": [')
                        self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                elif callable(trouble):
                    self.reply(200, trouble(answer))
                elif trouble is not None:
                    self.reply(*trouble[:2], **(trouble[2] if len(trouble) > 2 else {}))
                else:
                    self.reply(200, answer)

            def log_message(self, *words):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Say nothing about a client that has closed the connection after its timeout.
        self._server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        ).start()

    def close(self):
        """Stop the server and free its port."""
        self._server.shutdown()
        self._server.server_close()


def completion(body, wrong=3):
    """Return the JSON of a chat completion that answers the sum in the last line of the request `body`.

    The seed decides: one in `wrong` is wrong, and one in eleven counts as cut off.
    """
    question = body["messages"][-1]["content"].splitlines()[-1]
    seed = body.get("seed", 1)
    value = sum(map(int, question.removesuffix(" = ?").split(" + "))) + (seed % wrong == 0)
    message = {"role": "assistant", "content": f"It is \\boxed{{{value}}}."}
    reason = "length" if seed % 11 == 0 else "stop"
    usage = {"completion_tokens": 5 + seed % 7}
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}
