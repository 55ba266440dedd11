"""Media types by file name extension: pinned, so that a bundle's bytes do not depend on the machine's tables."""

import mimetypes

# fmt: off
PINNED = {
    ".html": "text/html", ".htm": "text/html", ".xhtml": "application/xhtml+xml", ".xht": "application/xhtml+xml",
    ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript", ".cjs": "text/javascript",
    ".wasm": "application/wasm", ".json": "application/json", ".map": "application/json",
    ".jsonld": "application/ld+json", ".geojson": "application/geo+json", ".topojson": "application/json",
    ".webmanifest": "application/manifest+json", ".importmap": "application/importmap+json",
    ".appcache": "text/cache-manifest", ".htc": "text/x-component", ".glb": "model/gltf-binary",
    ".gltf": "model/gltf+json", ".wbn": "application/webbundle", ".xml": "application/xml", ".xsl": "application/xml",
    ".xslt": "application/xslt+xml", ".rss": "application/rss+xml", ".atom": "application/atom+xml",
    ".txt": "text/plain", ".text": "text/plain", ".log": "text/plain", ".md": "text/markdown",
    ".markdown": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values", ".ics": "text/calendar",
    ".vcf": "text/vcard", ".vtt": "text/vtt", ".srt": "application/x-subrip", ".yaml": "application/yaml",
    ".yml": "application/yaml", ".toml": "application/toml", ".svg": "image/svg+xml", ".png": "image/png",
    ".apng": "image/apng", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".jfif": "image/jpeg", ".gif": "image/gif",
    ".webp": "image/webp", ".avif": "image/avif", ".jxl": "image/jxl", ".heic": "image/heic", ".heif": "image/heif",
    ".bmp": "image/bmp", ".ico": "image/vnd.microsoft.icon", ".cur": "image/vnd.microsoft.icon",
    ".tif": "image/tiff", ".tiff": "image/tiff", ".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf",
    ".otf": "font/otf", ".ttc": "font/collection", ".eot": "application/vnd.ms-fontobject", ".mp4": "video/mp4",
    ".m4v": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg", ".mov": "video/quicktime",
    ".mpeg": "video/mpeg", ".mpg": "video/mpeg", ".avi": "video/x-msvideo", ".mkv": "video/matroska",
    ".ts": "video/mp2t", ".m2ts": "video/mp2t", ".m3u8": "application/vnd.apple.mpegurl",
    ".mpd": "application/dash+xml", ".mp3": "audio/mpeg", ".m4a": "audio/mp4", ".aac": "audio/aac",
    ".oga": "audio/ogg", ".ogg": "audio/ogg", ".opus": "audio/ogg", ".flac": "audio/flac", ".wav": "audio/wav",
    ".weba": "audio/webm", ".mid": "audio/midi", ".midi": "audio/midi", ".pdf": "application/pdf",
    ".epub": "application/epub+zip", ".zip": "application/zip", ".gz": "application/gzip", ".tgz": "application/gzip",
    ".bz2": "application/x-bzip2", ".xz": "application/x-xz", ".zst": "application/zstd",
    ".br": "application/octet-stream", ".tar": "application/x-tar", ".7z": "application/x-7z-compressed",
    ".exe": "application/octet-stream", ".bin": "application/octet-stream", ".swf": "application/x-shockwave-flash",
}
# fmt: on
"""From extension to media type, for files of the web."""

_OTHERS = mimetypes.MimeTypes()
"""Python's own table, without the machine's files that `mimetypes.guess_type` reads."""


def media_type(name: str) -> str:
    """Return the media type for a file of this name, `application/octet-stream` for an unknown extension.

    The last extension counts: `page.html.gz` is an archive, without a content coding.
    """
    _, dot, extension = name.rpartition(".")
    suffix = dot + extension.lower()
    return PINNED.get(suffix) or _OTHERS.types_map[True].get(suffix, "application/octet-stream")
