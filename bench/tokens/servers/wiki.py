"""The handbook of a company: pages in Markdown, in spaces."""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias

from bench.tokens.servers.records import Record, changes, find_one, reads, without

from pinfold.tools import BadCall

Space: TypeAlias = Literal["HR", "OPS", "SALES", "ENG"]
_SPACES: tuple[Space, ...] = ("HR", "OPS", "SALES", "ENG")
_WRITERS = ("priya", "tomas", "lena", "marco", "yuki")
_TOPICS = ("Onboarding", "Backups", "Price list", "Code review", "Holidays", "On call", "Demos", "Testing")
_ABOUT = (
    "Ask your lead before you begin.",
    "The list is reviewed every quarter.",
    "Exceptions need a written reason.",
    "See the checklist below for the order of steps.",
    "Nothing here replaces the contract.",
)
_COSTS = """\
# Travel costs

Book trains in second class. Flights only if the train takes more than five hours.

## Hotels

Up to 140 euro a night, in Paris and London up to 190 euro. Breakfast is not refunded twice.

## Meals

28 euro for a whole day, 14 euro for the day of arrival and of departure.

## Receipts

Hand in receipts within 30 days. Without a receipt nothing above 10 euro is refunded.
"""
_LAPTOPS = """\
# Laptops for new colleagues

Order the laptop ten working days before the first day, through Emil.

- Developers: 32 GB of memory, any of the two models in the list.
- Everybody else: the light model.
- Disks are encrypted before they are handed over.

Return old ones to room 4. Wiping takes a day.
"""
_NOTES = """\
# Release notes 1.5

- 4f1c2ab Export keeps the order of columns
- 9be07d1 Search finds words with hyphens
- 0c77e54 Invoices show the tax number
- a81d9f0 Sessions end after a day
"""
_WRITTEN = {
    "pg_1004": ("HR", "Travel costs", _COSTS),
    "pg_1011": ("ENG", "Laptops for new colleagues", _LAPTOPS),
    "pg_1020": ("ENG", "Release notes 1.5", _NOTES),
}


def _vendors() -> str:
    made = Random(31)
    rows = [
        f"| {made.choice(('Nord', 'Blue', 'Hill', 'Fern', 'Star', 'Oak'))}{made.choice(('soft', 'data', 'mail', 'desk', 'grid'))} {number} "
        f"| {made.choice(('hosting', 'office', 'security', 'travel', 'training'))} | {made.randint(8, 420) * 100} "
        f"| 202{made.randint(6, 8)}-{made.randint(1, 12):02d}-{made.choice((15, 28))} | {made.choice(_WRITERS)} |"
        for number in range(1, 71)
    ]
    head = "| Vendor | Kind | Cost per year (EUR) | Contract ends | Owner |\n|---|---|---|---|---|\n"
    return "# Vendors\n\nAll vendors with a contract. Prices without tax.\n\n" + head + "\n".join(rows) + "\n"


class Wiki:
    def __init__(self) -> None:
        made = Random(32)
        self._comments: dict[str, list[Record]] = {}
        self._pages: list[Record] = []
        for number in range(1001, 1047):
            key = f"pg_{number}"
            space, title, body = _WRITTEN.get(key, ("", "", ""))
            if key == "pg_1030":
                space, title, body = "OPS", "Vendors", _vendors()
            if not body:
                space = made.choice(_SPACES)
                title = f"{made.choice(_TOPICS)} {made.choice(('guide', 'rules', 'checklist', 'notes'))} {number % 50}"
                body = f"# {title}\n\n" + "\n".join(made.choice(_ABOUT) for _ in range(made.randint(3, 9)))
            self._pages.append(
                {
                    "id": key,
                    "title": title,
                    "space": space,
                    "parent_id": None,
                    "labels": made.sample(("draft", "policy", "howto"), made.randint(0, 2)),
                    "version": {
                        "number": made.randint(1, 14),
                        "by": made.choice(_WRITERS),
                        "at": f"202{made.choice((4, 5, 5))}-0{made.randint(1, 9)}-{made.randint(10, 28)}T10:30:00.000Z",
                    },
                    "url": f"https://wiki.example/{space}/{key}",
                    "body": body,
                }
            )

    @reads
    def search_pages(self, query: str, space: Space | None = None, limit: int = 10) -> Record:
        """Search pages by words in their title or text. Every word must occur. Results come with an excerpt and are
        ordered by relevance.

        Args:
            query: Words to search for.
            space: Key of the space to search in; all spaces unless given.
            limit: Maximum number of results, at most 25.
        """
        words = query.lower().split()
        found = [
            one
            for one in self._pages
            if all(word in f"{one['title']} {one['body']}".lower() for word in words) and space in (None, one["space"])
        ]
        found.sort(key=lambda one: -sum(word in one["title"].lower() for word in words))
        results = [
            {**without(one, "body", "labels", "parent_id"), "excerpt": one["body"][:120].replace("\n", " ")}
            for one in found[: min(limit, 25)]
        ]
        return {"results": results, "total_size": len(found)}

    @reads
    def get_page(self, page_id: str) -> Record:
        """Get a page with its text in Markdown, its labels and its version.

        Args:
            page_id: The id of the page, such as pg_1234.
        """
        return self._page(page_id)

    @reads
    def list_pages(self, space: Space, label: str | None = None, limit: int = 20, cursor: str | None = None) -> Record:
        """List the pages of a space in the order they were created, without their text. Use the cursor that comes with
        a result to get the next ones.

        Args:
            space: Key of the space.
            label: Only pages that carry this label.
            limit: Pages per result, at most 25.
            cursor: Where to go on, as the result before says.
        """
        found = [
            without(one, "body")
            for one in self._pages
            if one["space"] == space and (label is None or label in one["labels"])
        ]
        start, limit = int(cursor or 0), min(limit, 25)
        more = {"next_cursor": str(start + limit)} if start + limit < len(found) else {}
        return {"pages": found[start : start + limit], **more}

    @changes
    def create_page(self, space: Space, title: str, body: str, parent_id: str | None = None) -> Record:
        """Create a page in a space. The title must not be taken in that space.

        Args:
            space: Key of the space.
            title: Title of the page.
            body: Text of the page in Markdown.
            parent_id: The page it shall be listed under.
        """
        if any(one["title"] == title and one["space"] == space for one in self._pages):
            raise BadCall(f"there is a page called {title!r} in {space} already")
        key = f"pg_{1001 + len(self._pages)}"
        page: Record = {
            "id": key,
            "title": title,
            "space": space,
            "parent_id": parent_id,
            "labels": [],
            "version": {"number": 1, "by": "you", "at": "2026-03-02T09:00:00.000Z"},
            "url": f"https://wiki.example/{space}/{key}",
            "body": body,
        }
        self._pages.append(page)
        return without(page, "body")

    @changes
    def update_page(self, page_id: str, body: str, title: str | None = None, version_comment: str = "") -> Record:
        """Replace the text of a page by a new one. The old text stays in the history of the page.

        Args:
            page_id: The id of the page.
            body: The whole new text in Markdown.
            title: New title; the old one is kept unless given.
            version_comment: What was changed, for the history.
        """
        page = self._page(page_id)
        page.update({"body": body, "title": title or page["title"]})
        return {**self._save(page), "version_comment": version_comment}

    @changes
    def append_to_page(self, page_id: str, text: str) -> Record:
        """Add Markdown at the end of a page.

        Args:
            page_id: The id of the page.
            text: What to add.
        """
        page = self._page(page_id)
        page["body"] += f"\n{text}\n"
        return self._save(page)

    @changes
    def move_page(self, page_id: str, space: Space, parent_id: str | None = None) -> Record:
        """Move a page to another space or under another page. Links to it keep working.

        Args:
            page_id: The id of the page.
            space: Key of the space it shall be in.
            parent_id: The page it shall be listed under.
        """
        page = self._page(page_id)
        page.update({"space": space, "parent_id": parent_id})
        return without(page, "body")

    @changes
    def delete_page(self, page_id: str) -> Record:
        """Move a page to the trash. Administrators can restore it within 30 days.

        Args:
            page_id: The id of the page.
        """
        self._pages.remove(self._page(page_id))
        return {"id": page_id, "status": "trashed"}

    @changes
    def add_label(self, page_id: str, label: str) -> Record:
        """Put a label on a page. Labels are shared by all spaces.

        Args:
            page_id: The id of the page.
            label: The label, without blanks.
        """
        page = self._page(page_id)
        page["labels"] = sorted({*page["labels"], label})
        return {"id": page_id, "labels": [{"prefix": "global", "name": one} for one in page["labels"]]}

    @reads
    def list_comments(self, page_id: str) -> Record:
        """List the comments on a page, oldest first.

        Args:
            page_id: The id of the page.
        """
        self._page(page_id)
        return {"comments": self._comments.get(page_id, [])}

    @changes
    def add_comment(self, page_id: str, text: str, reply_to: str | None = None) -> Record:
        """Comment on a page. Those who watch the page are told by mail.

        Args:
            page_id: The id of the page.
            text: The comment in Markdown.
            reply_to: The id of the comment it answers.
        """
        self._page(page_id)
        comments = self._comments.setdefault(page_id, [])
        comments.append(
            {
                "id": f"cm_{page_id[3:]}_{len(comments) + 1}",
                "by": "you",
                "text": text,
                "reply_to": reply_to,
                "at": "2026-03-02T09:00:00.000Z",
            }
        )
        return comments[-1]

    @reads
    def get_page_history(self, page_id: str, limit: int = 5) -> Record:
        """Get the latest versions of a page: who changed it, when, and how much.

        Args:
            page_id: The id of the page.
            limit: Maximum number of versions.
        """
        page = self._page(page_id)
        last: int = page["version"]["number"]
        older = [
            {
                "number": number,
                "by": _WRITERS[number % 5],
                "at": f"2024-0{1 + number % 9}-11T08:00:00.000Z",
                "diff_lines": number * 3 % 17,
            }
            for number in range(last - 1, max(0, last - limit), -1)
        ]
        return {"versions": [{**page["version"], "diff_lines": 1}, *older]}

    def _page(self, page_id: str) -> Record:
        return find_one(self._pages, "id", page_id, "page")

    def _save(self, page: Record) -> Record:
        page["version"] = {"number": page["version"]["number"] + 1, "by": "you", "at": "2026-03-02T09:00:00.000Z"}
        return {"id": page["id"], "version": page["version"], "url": page["url"]}
