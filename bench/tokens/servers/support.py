"""A support desk: tickets, agents, notes."""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias

from bench.tokens.servers.records import Record, changes, find_one, page_of, reads

from pinfold.tools import BadCall

Priority: TypeAlias = Literal["low", "normal", "high", "urgent"]
_TITLES = ("Cannot log in", "Refund missing", "Wrong invoice", "App crashes", "Slow page", "Change my address")
_AGENTS = ("mia", "noah", "olga", "paul")


class Support:
    def __init__(self) -> None:
        made = Random(18)
        priorities: tuple[Priority, ...] = ("low", "normal", "normal", "high", "urgent")
        self._tickets: list[Record] = [
            {
                "ticket_id": number,
                "title": made.choice(_TITLES),
                "status": made.choice(("open", "open", "pending", "closed")),
                "priority": made.choice(priorities),
                "assignee": made.choice((*_AGENTS, None)),
                "requester": f"user{made.randint(1, 40)}@mail.example",
                "channel": made.choice(("mail", "chat", "phone")),
                "opened_on": f"2026-02-{made.randint(1, 28):02d}",
                "first_reply_hours": round(made.uniform(0.2, 40), 1),
                "tags": made.sample(("billing", "account", "mobile", "web"), 2),
            }
            for number in range(301, 371)
        ]
        self._notes: dict[int, list[str]] = {}

    @reads
    def list_tickets(
        self,
        *,
        status: Literal["open", "pending", "closed", "all"] = "open",
        priority: Priority | None = None,
        assignee: str | None = None,
        unassigned: bool = False,
        page: int = 1,
        per_page: int = 25,
    ) -> Record:
        """List tickets of the support desk, oldest first. All filters that are given must match. Results are
        paginated.

        Args:
            status: Filter by the state of the ticket.
            priority: Filter by priority.
            assignee: Only tickets of this agent.
            unassigned: Only tickets that nobody works on.
            page: Page number for pagination, starting at 1.
            per_page: Tickets per page, at most 30.
        """
        found = [
            one
            for one in sorted(self._tickets, key=lambda one: (one["opened_on"], one["ticket_id"]))
            if status in ("all", one["status"])
            and (priority is None or one["priority"] == priority)
            and (assignee is None or one["assignee"] == assignee)
            and not (unassigned and one["assignee"])
        ]
        return page_of(found, page, min(per_page, 30), "tickets")

    @reads
    def get_ticket(self, ticket_id: int) -> Record:
        """Get one ticket with its notes.

        Args:
            ticket_id: The id of the ticket.
        """
        return {**self._ticket(ticket_id), "notes": self._notes.get(ticket_id, [])}

    @changes
    def create_ticket(
        self, title: str, description: str = "", priority: Priority = "normal", requester: str = ""
    ) -> Record:
        """Create a ticket and queue it. Nobody is assigned until assign_ticket is called.

        Args:
            title: Title of the ticket.
            description: What it is about.
            priority: How urgent it is.
            requester: Mail address of the person who asks.
        """
        ticket: Record = {
            "ticket_id": self._tickets[-1]["ticket_id"] + 1,
            "title": title,
            "status": "open",
            "priority": priority,
            "assignee": None,
            "requester": requester,
            "channel": "mail",
            "opened_on": "2026-03-02",
            "first_reply_hours": 0.0,
            "tags": [],
        }
        self._tickets.append(ticket)
        return {**ticket, "description": description}

    @changes
    def edit_ticket(
        self,
        ticket_id: int,
        title: str | None = None,
        priority: Priority | None = None,
        status: Literal["open", "pending"] | None = None,
    ) -> Record:
        """Change a ticket. Only the fields that are given are changed.

        Args:
            ticket_id: The id of the ticket.
            title: New title.
            priority: New priority.
            status: New state; to close a ticket use close_ticket.
        """
        ticket = self._ticket(ticket_id)
        given = {"title": title, "priority": priority, "status": status}
        ticket.update({key: value for key, value in given.items() if value is not None})
        return ticket

    @changes
    def assign_ticket(self, ticket_id: int, agent: str) -> Record:
        """Assign a ticket to an agent, who is told of it.

        Args:
            ticket_id: The id of the ticket.
            agent: Name of the agent, as list_agents gives it.
        """
        if agent not in _AGENTS:
            raise BadCall(f"there is no agent {agent!r}; there are {', '.join(_AGENTS)}")
        self._ticket(ticket_id)["assignee"] = agent
        return {"ticket_id": ticket_id, "assignee": agent}

    @changes
    def add_note(self, ticket_id: int, text: str, public: bool = False) -> Record:
        """Add a note to a ticket.

        Args:
            ticket_id: The id of the ticket.
            text: The note.
            public: Whether the person who asked can see it.
        """
        self._ticket(ticket_id)
        self._notes.setdefault(ticket_id, []).append(text)
        return {"ticket_id": ticket_id, "notes": len(self._notes[ticket_id]), "public": public}

    @changes
    def resolve_ticket(self, ticket_id: int, resolution: str) -> Record:
        """Resolve a ticket with words that say how. The requester is asked whether they agree; the ticket is pending
        until then.

        Args:
            ticket_id: The id of the ticket.
            resolution: How it was resolved.
        """
        self._ticket(ticket_id)["status"] = "pending"
        return {"ticket_id": ticket_id, "status": "pending", "resolution": resolution}

    @changes
    def close_ticket(self, ticket_id: int) -> Record:
        """Close a ticket.

        Args:
            ticket_id: The id of the ticket.
        """
        ticket = self._ticket(ticket_id)
        if ticket["status"] == "closed":
            raise BadCall(f"ticket {ticket_id} is closed already")
        ticket["status"] = "closed"
        return {"ticket_id": ticket_id, "status": "closed"}

    @reads
    def search_tickets(self, query: str, page: int = 1) -> Record:
        """Search tickets of any state by words in their title, 25 to a page.

        Args:
            query: What the title must contain, whatever its case.
            page: Page number for pagination, starting at 1.
        """
        return page_of([one for one in self._tickets if query.lower() in one["title"].lower()], page, 25, "tickets")

    @reads
    def list_agents(self) -> list[Record]:
        """List the agents of the support desk with the number of open tickets each has."""
        return [
            {
                "agent": agent,
                "open_tickets": sum(one["assignee"] == agent and one["status"] == "open" for one in self._tickets),
                "online": agent != "paul",
            }
            for agent in _AGENTS
        ]

    def _ticket(self, ticket_id: int) -> Record:
        return find_one(self._tickets, "ticket_id", ticket_id, "ticket")
