"""Page of a report as a text: safe for every name, complete, and bound to nothing outside."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import msgspec
import pytest
from support.pages.reports import BOB, answer, empty_report, report

from pdp.lake.report.html import render

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; </style><script>x</script>",
    "{{ 7*7 }}{% raw %}",
    "</title></svg><a href=javascript:alert(1)>x",
    "a\u202egnp.exe\u2066b",
    "line\nbreak\ttab\x00null\x1b[31m",
    "lone \ud800 surrogate",
    "שלום/مرحبا",
    "Z" + "\u0321\u0359\u0345" * 40,
    "x" * 50_000,
    "&lt;b&gt; &#x202e;",
    "]]><!--",
]
"""Names as clients may send them."""


class Seen(HTMLParser):
    """Elements, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"`{tag}` ends where another element is open"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", HOSTILE)
def test_every_name_is_shown_and_none_acts(name: str) -> None:
    page = render(report(f"user:oidc~{name}", f"table:lake/s/{name}", name))
    plain = Seen(render(report()))
    seen = Seen(page)
    assert seen.tags == plain.tags
    assert not seen.open
    assert {(tag, attribute) for tag, attribute, _ in seen.attributes} == {
        (tag, attribute) for tag, attribute, _ in plain.attributes
    }
    page.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    if len(name) < 200 and name.isprintable():
        assert name in seen.text
    assert len(page) < 400_000


def test_the_page_allows_nothing_but_its_own_style() -> None:
    page = render(report())
    seen = Seen(page)
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = next(value for tag, name, value in seen.attributes if (tag, name) == ("meta", "content"))
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not seen.tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "image",
        "use",
        "foreignobject",
    }
    for tag, name, value in seen.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("style", "src", "srcset", "action", "xlink:href"), (tag, name)
        assert name != "href" or value.startswith("#"), value
    assert "url(" not in style
    assert "@import" not in style
    assert "http:" not in page
    assert "https:" not in page


def test_links_lead_to_places_of_the_page_and_ids_are_unique() -> None:
    seen = Seen(render(report()))
    ids = [value for _, name, value in seen.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    named = {value for _, name, value in seen.attributes if name == "aria-labelledby"}
    wanted = {id for value in named for id in value.split()}
    wanted |= {value[1:] for _, name, value in seen.attributes if name == "href"}
    assert wanted <= set(ids)


def test_findings_come_first_and_name_their_evidence() -> None:
    text = Seen(render(report(principal="user:oidc~mallory"))).text
    assert text.index("What needs a look") < text.index("Decisions each day") < text.rindex("Dormant principals")
    for part in (
        "mallory went on trying",
        "is denied",
        "grant without use",
        "rule without use",
        "looked at new places at night",
    ):
        assert part in text


def test_a_lake_without_records_says_how_to_begin() -> None:
    text = Seen(render(empty_report())).text
    assert "No decision yet" in text
    assert "pdp pipeline ingest" in text


@pytest.mark.parametrize("days", [1, 2, 3, 95, 800])
def test_any_number_of_days_has_a_chart(days: int) -> None:
    page = render(report(days=days))
    assert "Decisions each day" in page
    assert len(page) < 600_000


def test_rows_that_are_left_out_are_summed() -> None:
    made = report()
    rows = [[f"user:oidc~p{number:03}", 1, 1, 2, 2, 0, 1, 1, None, None] for number in range(100)]
    principals = answer("principals", rows, 23, {"reads": 40, "writes": 2, "accesses": 42, "allowed": 50, "denied": 7})
    page = Seen(render(msgspec.structs.replace(made, answers={**made.answers, "principals": principals}))).text
    assert "109 more" in page  # 14 of 123 are shown
    assert "126" in page  # 86 reads of the others at hand, 40 beyond


def test_nothing_to_do_is_said() -> None:
    made = report(BOB)
    keep = {"totals", "days", "hours", "principals", "roles", "objects", "actions", "engines", "callers"}
    answers = {
        name: each if name in keep else answer(name) for name, each in made.answers.items() if name != "candidate"
    }
    text = Seen(render(msgspec.structs.replace(made, answers=answers))).text
    assert "Nothing needs a look" in text
    assert "Nothing was denied" in text
    assert "Nobody read anything through a DEFINER view" in text
