"""A Django site behind the gatekeeper, in one file: `python examples/django_app.py`, or any WSGI server with `app`.

In a project of your own, the two lines that matter go to wsgi.py, around `get_wsgi_application()`; in asgi.py they are
the same with `headgate.origin.asgi`. The login page has a rule of its own, tighter than that of the rest of the site.
"""

import os

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from waitress import serve

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Route, Routes
from headgate.origin.wsgi import GatekeeperMiddleware

settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="only an example", ALLOWED_HOSTS=["127.0.0.1"])
django.setup()


def hello(_request: HttpRequest) -> JsonResponse:
    return JsonResponse({"hello": "world"})


urlpatterns = [path("", hello), path("login", hello)]

gatekeeper = Gatekeeper.embedded(
    [Domain("login", (Rule.parse("2/min"),)), Domain("site", (Rule.parse("2/s burst 5"),))]
)
domain = Routes([Route("login", path_prefix="/login"), Route("site")])
app = GatekeeperMiddleware(get_wsgi_application(), gatekeeper=gatekeeper, domain=domain)

if __name__ == "__main__":
    serve(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), threads=8)
