"""An issue tracker with pull requests, in the manner of a code hosting service."""

from __future__ import annotations

from random import Random
from typing import Literal

from bench.tokens.servers.records import Record, changes, find_one, page_of, reads, without

from pinfold.tools import BadCall

REPOSITORIES = ("acme/api", "acme/web")
_PEOPLE = ("priya", "tomas", "lena", "marco", "yuki")
_LABELS = ("bug", "feature", "docs", "performance", "security")
_WHAT = ("Login", "Export", "Search", "Billing page", "Upload", "Webhook", "Session", "Invoice PDF", "Audit log")
_WRONG = ("times out", "shows stale data", "fails on empty input", "ignores the locale", "is slow", "loses focus")


class Issues:
    def __init__(self) -> None:
        made = Random(12)
        self._issues: list[Record] = []
        for number in range(101, 161):
            created = f"2026-{made.randint(1, 2):02d}-{made.randint(1, 28):02d}T{made.randint(8, 18):02d}:15:00Z"
            self._issues.append(
                {
                    "number": number,
                    "repository": REPOSITORIES[number % 2],
                    "title": f"{made.choice(_WHAT)} {made.choice(_WRONG)}",
                    "state": "open" if made.random() < 0.7 else "closed",
                    "labels": sorted(made.sample(_LABELS, made.randint(1, 2))),
                    "assignee": made.choice((*_PEOPLE, None)),
                    "author": made.choice(_PEOPLE),
                    "comments": made.randint(0, 9),
                    "created_at": created,
                    "updated_at": created,
                    "html_url": f"https://code.example/{REPOSITORIES[number % 2]}/issues/{number}",
                }
            )
        self._comments: dict[int, list[Record]] = {}
        self._pulls: list[Record] = [
            {
                "number": 200 + place,
                "repository": REPOSITORIES[place % 2],
                "title": f"Fix: {made.choice(_WHAT)} {made.choice(_WRONG)}",
                "state": "open",
                "author": made.choice(_PEOPLE),
                "additions": made.randint(3, 400),
                "deletions": made.randint(0, 200),
                "checks": made.choice(("success", "success", "failure")),
                "reviews": made.choice(("approved", "approved", "changes_requested", "pending")),
                "mergeable": True,
            }
            for place in range(1, 13)
        ]

    @reads
    def list_issues(
        self,
        repository: str,
        *,
        state: Literal["open", "closed", "all"] = "open",
        labels: list[str] | None = None,
        assignee: str | None = None,
        sort: Literal["created", "updated", "comments"] = "created",
        page: int = 1,
        per_page: int = 20,
    ) -> Record:
        """List issues in a repository. Results are paginated, newest first unless sorted otherwise. Pull requests are
        not included. For a full-text query over several repositories use search_issues.

        Args:
            repository: Owner and name of the repository, such as octo/site.
            state: Filter by the state of the issue.
            labels: Only issues that carry all of these labels.
            assignee: Login of the person the issue is assigned to.
            sort: What to sort the results by.
            page: Page number for pagination, starting at 1.
            per_page: Results per page, at most 30.
        """
        found = [
            one
            for one in self._issues
            if one["repository"] == self._check_repository(repository)
            and state in ("all", one["state"])
            and set(labels or ()) <= set(one["labels"])
            and (assignee is None or one["assignee"] == assignee)
        ]
        key = {"created": "created_at", "updated": "updated_at", "comments": "comments"}[sort]
        return page_of(sorted(found, key=lambda one: one[key], reverse=True), page, min(per_page, 30), "issues")

    @reads
    def get_issue(self, repository: str, issue_number: int) -> Record:
        """Get the details of a specific issue in a repository, with its description.

        Args:
            repository: Owner and name of the repository.
            issue_number: The number of the issue.
        """
        issue = self._issue(repository, issue_number)
        body = f"Steps to reproduce: open the page and wait. Expected: it works. Seen: {issue['title'].lower()}."
        return {**issue, "body": body, "milestone": "2026.2", "locked": False}

    @changes
    def create_issue(
        self, repository: str, title: str, body: str = "", labels: list[str] | None = None, assignee: str | None = None
    ) -> Record:
        """Create a new issue in a repository and get it with the number it was given.

        Args:
            repository: Owner and name of the repository.
            title: Title of the issue.
            body: Description in Markdown.
            labels: Labels to apply to the issue.
            assignee: Login of the person to assign it to.
        """
        number = self._issues[-1]["number"] + 1
        self._issues.append(
            {
                "number": number,
                "repository": self._check_repository(repository),
                "title": title,
                "state": "open",
                "labels": labels or [],
                "assignee": assignee,
                "author": "you",
                "comments": 0,
                "created_at": "2026-03-02T09:00:00Z",
                "updated_at": "2026-03-02T09:00:00Z",
                "html_url": f"https://code.example/{repository}/issues/{number}",
            }
        )
        return {**self._issues[-1], "body": body}

    @changes
    def update_issue(
        self,
        repository: str,
        issue_number: int,
        *,
        title: str | None = None,
        state: Literal["open", "closed"] | None = None,
        labels: list[str] | None = None,
        assignee: str | None = None,
    ) -> Record:
        """Update an existing issue. Only the fields that are given are changed; labels replace the existing ones.

        Args:
            repository: Owner and name of the repository.
            issue_number: The number of the issue.
            title: New title.
            state: Close or reopen the issue.
            labels: New set of labels.
            assignee: Login of the new assignee.
        """
        issue = self._issue(repository, issue_number)
        given = {"title": title, "state": state, "labels": labels, "assignee": assignee}
        issue.update({key: value for key, value in given.items() if value is not None})
        issue["updated_at"] = "2026-03-02T09:00:00Z"
        return issue

    @changes
    def add_issue_comment(self, repository: str, issue_number: int, body: str) -> Record:
        """Add a comment to an issue or a pull request.

        Args:
            repository: Owner and name of the repository.
            issue_number: The number of the issue or pull request.
            body: The comment in Markdown.
        """
        issue = self._issue(repository, issue_number)
        issue["comments"] += 1
        comment = {"id": 9000 + issue_number, "author": "you", "body": body, "created_at": "2026-03-02T09:00:00Z"}
        self._comments.setdefault(issue_number, []).append(comment)
        return comment

    @reads
    def list_issue_comments(self, repository: str, issue_number: int, page: int = 1) -> Record:
        """Get the comments of an issue, oldest first, 20 to a page.

        Args:
            repository: Owner and name of the repository.
            issue_number: The number of the issue.
            page: Page number for pagination, starting at 1.
        """
        self._issue(repository, issue_number)
        return page_of(self._comments.get(issue_number, []), page, 20, "comments")

    @reads
    def search_issues(self, query: str, state: Literal["open", "closed", "all"] = "all", page: int = 1) -> Record:
        """Search for issues in all repositories by words in their title. All words must occur; results come 20 to a
        page.

        Args:
            query: Words to search for, separated by blanks.
            state: Filter by the state of the issue.
            page: Page number for pagination, starting at 1.
        """
        words = query.lower().split()
        found = [
            one
            for one in self._issues
            if all(word in one["title"].lower() for word in words) and state in ("all", one["state"])
        ]
        return page_of(found, page, 20, "issues")

    @reads
    def list_labels(self, repository: str) -> list[Record]:
        """List all labels that can be used in a repository, with the number of open issues that carry each.

        Args:
            repository: Owner and name of the repository.
        """
        there = [one for one in self._issues if one["repository"] == self._check_repository(repository)]
        open_ = [one for one in there if one["state"] == "open"]
        return [{"name": label, "open_issues": sum(label in one["labels"] for one in open_)} for label in _LABELS]

    @reads
    def list_pull_requests(
        self, repository: str, state: Literal["open", "closed", "all"] = "open", page: int = 1
    ) -> Record:
        """List pull requests in a repository, 20 to a page, with the state of their checks and reviews.

        Args:
            repository: Owner and name of the repository.
            state: Filter by the state of the pull request.
            page: Page number for pagination, starting at 1.
        """
        found = [
            without(one, "additions", "deletions")
            for one in self._pulls
            if one["repository"] == self._check_repository(repository) and state in ("all", one["state"])
        ]
        return page_of(found, page, 20, "pull_requests")

    @reads
    def get_pull_request(self, repository: str, pull_number: int) -> Record:
        """Get the details of a specific pull request, with the size of its changes.

        Args:
            repository: Owner and name of the repository.
            pull_number: The number of the pull request.
        """
        self._check_repository(repository)
        return find_one(self._pulls, "number", pull_number, "pull request")

    @changes
    def merge_pull_request(
        self, repository: str, pull_number: int, method: Literal["merge", "squash", "rebase"] = "merge"
    ) -> Record:
        """Merge a pull request. It must be open, approved, and its checks must have succeeded.

        Args:
            repository: Owner and name of the repository.
            pull_number: The number of the pull request.
            method: How to merge it.
        """
        self._check_repository(repository)
        pull = find_one(self._pulls, "number", pull_number, "pull request")
        if pull["state"] != "open" or pull["checks"] != "success" or pull["reviews"] != "approved":
            raise BadCall(f"pull request {pull_number} cannot be merged: checks {pull['checks']}, {pull['reviews']}")
        pull["state"] = "closed"
        return {"merged": True, "sha": f"{pull_number * 7919:x}", "method": method}

    def _check_repository(self, repository: str) -> str:
        if repository not in REPOSITORIES:
            raise BadCall(f"there is no repository {repository!r}; there are {', '.join(REPOSITORIES)}")
        return repository

    def _issue(self, repository: str, number: int) -> Record:
        found = [one for one in self._issues if one["repository"] == self._check_repository(repository)]
        return find_one(found, "number", number, "issue")
