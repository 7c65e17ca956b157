"""Receives Fairlane's webhooks with Flask: `FAIRLANE_WEBHOOK_SECRET=whsec_… flask --app webhook_flask run`."""

import os

from flask import Flask, request

from fairlane import WebhookInvalid, verify_webhook

# Several, with blanks between them, while a secret is rotated.
SECRETS = os.environ["FAIRLANE_WEBHOOK_SECRET"].split()

app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 1 << 20
seen: set[str] = set()  # where there are several processes: a table with a unique column


@app.post("/hooks/fairlane")
def receive() -> tuple[str, int]:
    try:
        event = verify_webhook(request.get_data(), request.headers, SECRETS)  # the body as it came
    except WebhookInvalid as invalid:
        return invalid.message, 401
    webhook_id = request.headers["webhook-id"]
    if webhook_id not in seen:  # an event may come more than once
        handle(event["type"], event["data"])
        seen.add(webhook_id)  # only now: what was not handled is sent again
    return "", 204


def handle(kind: str, data: dict) -> None:
    """Be quick, within 15 seconds: what takes longer belongs into a queue of your own."""
    app.logger.warning("%s: %s", kind, data["id"])
