"""Which URLs may be called on behalf of a tenant: the guard against requests that are forged to reach the inside.

Two questions, asked at two times. When a URL is registered: is it spelled plainly, and is it no inside name or address
(`Guard.check`)? When it is called: is each address that its name has *now* an outside one (`Guard.refusal`)? Only the
second is the wall, since names change; whoever calls must connect to the very address that was asked about, as
dispatcher.webhooks.safe_http does.
"""

from fairlane.safe_url.guard import Guard as Guard
from fairlane.safe_url.spelling import SafeUrl as SafeUrl
