"""Receives Fairlane's webhooks with FastAPI: `FAIRLANE_WEBHOOK_SECRET=whsec_… uvicorn webhook_fastapi:app`."""

import logging
import os

from fastapi import FastAPI, HTTPException, Request

from fairlane import WebhookInvalid, verify_webhook

# Several, with blanks between them, while a secret is rotated.
SECRETS = os.environ["FAIRLANE_WEBHOOK_SECRET"].split()

app = FastAPI()
seen: set[str] = set()  # where there are several processes: a table with a unique column


@app.post("/hooks/fairlane", status_code=204)
async def receive(request: Request) -> None:
    try:
        event = verify_webhook(await request.body(), request.headers, SECRETS)  # the body as it came
    except WebhookInvalid as invalid:
        raise HTTPException(401, invalid.message) from invalid
    webhook_id = request.headers["webhook-id"]
    if webhook_id not in seen:  # an event may come more than once
        await handle(event["type"], event["data"])
        seen.add(webhook_id)  # only now: what was not handled is sent again


async def handle(kind: str, data: dict) -> None:
    """Be quick, within 15 seconds: what takes longer belongs into a queue of your own."""
    logging.getLogger(__name__).warning("%s: %s", kind, data["id"])
