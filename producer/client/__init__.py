"""The Python client: one interface over HTTP and straight to Redis, async inside, with a thin sync face.

- submission.py: what is asked; client.py: AsyncClient; handle.py: one job; bulk.py: many in; finishing.py: many out
- session.py, patience.py: trying again and waiting, whatever the transport; transport.py: its protocol
- http.py, direct.py: the two transports
- sync.py: the face, whose calls run in the event loop of a background thread (portal.py)
"""
