"""A Scrapy spider with the middleware in it, run in a process of its own: a reactor cannot be started twice.

Its arguments are the number of pages, their first part, and the seconds that a held request waits. It prints a line of
JSON for each page.
"""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from headgate.agent import Courtesy
from headgate.throttle import Throttle


class PoliteSpider(scrapy.Spider):
    name = "polite"
    pages, first, wait = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    courtesy = Courtesy("ExampleBot/1.0", throttle=Throttle(hold_localhost=True), wait=wait)
    custom_settings = {  # noqa: RUF012 - as Scrapy has it
        "DOWNLOADER_MIDDLEWARES": {"headgate.agent.scrapy.CourtesyMiddleware": 950},
        "COURTESY": courtesy,
        "DOWNLOAD_DELAY": 0.05,
    }

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for number in range(self.pages):
            yield scrapy.Request(f"{self.first}{number}", errback=self.failed)

    def parse(self, response: Response) -> None:
        print(json.dumps([response.url, response.status]))

    def failed(self, failure: Any) -> None:
        print(json.dumps([failure.request.url, type(failure.value).__name__]))


if __name__ == "__main__":
    process = CrawlerProcess({"LOG_LEVEL": "CRITICAL", "TELNETCONSOLE_ENABLED": False})
    process.crawl(PoliteSpider)
    process.start()
