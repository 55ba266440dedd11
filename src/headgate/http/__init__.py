"""HTTP parts that several packages share, all pure: URLs and origins, field values, dates and `Retry-After`, freshness,
conditional requests, media types and `Accept`; in `h1` the grammar of HTTP/1 messages. Parsers of field values never
raise an error.
"""
