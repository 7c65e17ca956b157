"""The Python client: one interface over HTTP and straight to Redis, async inside, with a thin sync face.

- submission.py: what is asked; client.py: AsyncClient; handle.py: one job, and outcome.py: what it comes to
- bulk.py: many in; finishing.py: many out; mapping.py: both, in order; stream.py: one answer, chunk by chunk;
  giving_up.py: when nobody waits any more
- batches.py, batch.py (a handle), lines.py (in), ordering.py (out), meter.py (how fast); files.py, content.py (what is
  uploaded); records.py: all of these as values
- webhooks.py: where a tenant's events go, and what became of them; webhook_records.py: these as values
- session.py, patience.py: trying again and waiting, whatever the transport; transport.py, archive.py, postbox.py: its
  protocol
- direct.py, http.py, http_….py: the two transports, over door.py (one front door), connections.py, refusals.py and
  sse.py
- scripted.py, scripted_….py: a third one, for tests (fairlane.testing): script.py says what, worded.py how
- sync.py, sync_….py: the face, whose calls run in the event loop of a background thread (portal.py)
- receiving.py: what the receivers of webhooks need
"""
