"""Webhooks: endpoints, what is delivered to them, and when. What sends them is dispatcher/webhooks.

- values.py: events and filters, an endpoint, the checks of what a tenant may say of it; delivery.py: a delivery
- endpoints.py: `Webhooks`, a tenant's endpoints and signing secrets
- payload.py: what is sent; making.py: the deliveries that an event becomes
- outbox.py: `Outbox`, deliveries as the dispatcher sees them; deliveries.py: `Deliveries`, as tenants and operators do
- finding.py: `EndpointSearch`, all tenants' endpoints

docs/webhooks.md tells how it goes. The state lives in the account's slot, written by scripts alone.
"""
