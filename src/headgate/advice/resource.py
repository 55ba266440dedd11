"""The traffic advice resource: where it is and what it is sent as (traffic-advice.txt, section 10)."""

from typing import Final

PATH: Final = "/.well-known/traffic-advice"
"""Where agents ask for it, on every origin (section 10.1)."""

MEDIA_TYPE: Final = "application/trafficadvice+json"
"""What it must be sent as: agents read null from anything else (section 5, processResponse step 8)."""
