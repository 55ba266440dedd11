"""A Scrapy spider that signs its requests, in a process of its own. It prints the status of the page that it gets.

Its arguments are a key file, a file of the authorities that it trusts, when to sign, and the URL of the page.
"""

import ssl
import sys

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from headgate.agent import Courtesy

_KEY, _CA, _SIGN, _URL = sys.argv[1:]


class SigningSpider(scrapy.Spider):
    name = "signing"
    start_urls = [_URL]  # noqa: RUF012 - as Scrapy has it
    custom_settings = {  # noqa: RUF012 - as Scrapy has it
        "DOWNLOADER_MIDDLEWARES": {"headgate.agent.scrapy.CourtesyMiddleware": 950},
        "COURTESY": Courtesy(
            "ExampleBot/1.0",
            key=_KEY,
            agent_url="https://bot.example",
            sign="when-asked" if _SIGN == "when-asked" else "always",
            robots=True,
            wait=5,
            tls=ssl.create_default_context(cafile=_CA),
        ),
        "ROBOTSTXT_OBEY": False,
    }

    def parse(self, response: Response) -> None:
        print(response.status)


if __name__ == "__main__":
    process = CrawlerProcess({"LOG_LEVEL": "CRITICAL", "TELNETCONSOLE_ENABLED": False})
    process.crawl(SigningSpider)
    process.start()
