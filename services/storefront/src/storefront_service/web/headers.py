"""Security headers of every response, and which responses may be cached."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PERSONAL = "no-store"
"""Cache-Control of pages with addresses, orders or a form for card data."""
PRIVATE = "private, no-cache"
"""Cache-Control of the other pages, which show how many items are in the visitor's cart."""

SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    # With no-referrer browsers would send `Origin: null` with forms.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}
