"""A Flask application behind the gatekeeper: `python examples/flask_app.py`, or any WSGI server with `app`.

Everything is limited to 2 requests a second for each X-Api-Key, or for each address without one, after a burst of 5.
Requests that come too early are rejected, with the time to come back: to wait for it would occupy a worker thread.
"""

import os

from flask import Flask
from waitress import serve

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin.wsgi import GatekeeperMiddleware

gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse("2/s burst 5"),))])

app = Flask(__name__)
app.wsgi_app = GatekeeperMiddleware(app.wsgi_app, gatekeeper=gatekeeper, identify="header:X-Api-Key")


@app.get("/")
def hello() -> dict[str, str]:
    return {"hello": "world"}


if __name__ == "__main__":
    serve(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), threads=8)
