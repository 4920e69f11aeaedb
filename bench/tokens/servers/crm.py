"""Customers, companies and deals of a sales team, with the fields of a record under `properties`."""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias

from bench.tokens.servers.records import Record, changes, find_one, reads

Stage: TypeAlias = Literal["qualified", "demo", "proposal", "won", "lost"]
_OWNERS = ("Lena", "Marco", "Sofia")
_FIRST = ("Ines", "Jonas", "Kira", "Liam", "Maya", "Nils", "Orla", "Pavel", "Rosa", "Sven")
_LAST = ("Adler", "Brandt", "Costa", "Dumas", "Engel", "Falk")
_SHOPPERS = (("Ada", "Berg"), ("Bo", "Chen"), ("Cleo", "Diaz"), ("Dan", "Eliot"), ("Eva", "Frost"), ("Finn", "Gray"))
_COMPANIES = ("Altmann", "Birkel", "Corvus", "Deltaplan", "Esker", "Fjord", "Garnet", "Helios", "Isar", "Juno")
_STAGES: tuple[Stage, ...] = ("qualified", "demo", "proposal", "proposal", "won", "lost")


def _stamp(id_: str, made: Random, properties: Record) -> Record:
    day = f"2025-{made.randint(1, 12):02d}-{made.randint(1, 28):02d}"
    return {
        "id": id_,
        "properties": properties,
        "createdAt": f"{day}T08:14:02.118Z",
        "updatedAt": f"2026-02-{made.randint(1, 28):02d}T16:40:55.902Z",
        "archived": False,
    }


class Crm:
    def __init__(self) -> None:
        made = Random(33)
        self._companies = [
            _stamp(
                str(701 + place),
                made,
                {
                    "name": name,
                    "domain": f"{name.lower()}.example",
                    "tier": made.choice(("enterprise", "mid", "small")),
                    "industry": made.choice(("retail", "energy", "health")),
                    "employees": made.randint(12, 4000),
                },
            )
            for place, name in enumerate(_COMPANIES)
        ]
        people = [(first, last, f"{first.lower()}@mail.example") for first, last in _SHOPPERS]
        people += [(made.choice(_FIRST), made.choice(_LAST), f"user{number}@mail.example") for number in range(1, 35)]
        self._contacts = [
            _stamp(
                str(501 + place),
                made,
                {
                    "firstname": first,
                    "lastname": last,
                    "email": email,
                    "phone": f"+49 30 {made.randint(100000, 999999)}",
                    "company_id": made.choice(self._companies)["id"],
                    "lifecycle": made.choice(("lead", "customer", "customer")),
                },
            )
            for place, (first, last, email) in enumerate(people)
        ]
        self._deals: list[Record] = []
        for place in range(44):
            contact = self._contacts[place % 6 if place < 8 else made.randint(0, 39)]
            stage = made.choice(_STAGES)
            self._deals.append(
                _stamp(
                    str(3101 + place),
                    made,
                    {
                        "dealname": f"{made.choice(('Renewal', 'Pilot', 'Rollout', 'Training'))} {place + 1}",
                        "dealstage": stage,
                        "amount": f"{made.randint(12, 640) * 125}.00" if place % 11 != 5 else None,
                        "closedate": f"2026-{made.randint(1, 6):02d}-{made.randint(1, 28):02d}",
                        "owner": made.choice(_OWNERS),
                        "contact_id": contact["id"],
                        "company_id": contact["properties"]["company_id"],
                    },
                )
            )
        self._activities: list[Record] = []

    @reads
    def search_contacts(self, query: str, limit: int = 10, after: str | None = None) -> Record:
        """Search contacts by name or mail address. Results are paginated: pass the value of paging.next.after to get
        the next page.

        Args:
            query: Part of a name or of a mail address, whatever its case.
            limit: Contacts per page, at most 50.
            after: The cursor of the page to get.
        """
        word = query.lower()
        found = [
            one
            for one in self._contacts
            if word in f"{one['properties']['firstname']} {one['properties']['lastname']}".lower()
            or word in one["properties"]["email"]
        ]
        return _page_of(found, min(limit, 50), after)

    @reads
    def get_contact(self, contact_id: str) -> Record:
        """Get a contact by id with all its properties.

        Args:
            contact_id: The id of the contact.
        """
        return find_one(self._contacts, "id", contact_id, "contact")

    @changes
    def create_contact(self, email: str, firstname: str, lastname: str, company_id: str = "") -> Record:
        """Create a contact. If there is one with the same mail address already, that one is given back unchanged.

        Args:
            email: Mail address of the person.
            firstname: First name.
            lastname: Last name.
            company_id: The company the person works for.
        """
        for one in self._contacts:
            if one["properties"]["email"] == email:
                return one
        person = {"firstname": firstname, "lastname": lastname, "email": email, "phone": ""}
        made = Random(email)
        contact = _stamp(
            str(501 + len(self._contacts)), made, {**person, "company_id": company_id, "lifecycle": "lead"}
        )
        self._contacts.append(contact)
        return contact

    @changes
    def update_contact(
        self, contact_id: str, phone: str | None = None, lifecycle: Literal["lead", "customer", "former"] | None = None
    ) -> Record:
        """Change properties of a contact. Only those that are given are changed.

        Args:
            contact_id: The id of the contact.
            phone: New phone number, with the code of the country.
            lifecycle: Where the contact stands.
        """
        contact = self.get_contact(contact_id)
        given = {"phone": phone, "lifecycle": lifecycle}
        contact["properties"].update({key: value for key, value in given.items() if value is not None})
        return contact

    @reads
    def list_companies(
        self, tier: Literal["enterprise", "mid", "small"] | None = None, limit: int = 10, after: str | None = None
    ) -> Record:
        """List companies with their domain, tier, industry and size. Results are paginated.

        Args:
            tier: Only companies of this tier.
            limit: Companies per page, at most 50.
            after: The cursor of the page to get.
        """
        found = [one for one in self._companies if tier in (None, one["properties"]["tier"])]
        return _page_of(found, min(limit, 50), after)

    @reads
    def get_company(self, company_id: str) -> Record:
        """Get a company by id with all its properties.

        Args:
            company_id: The id of the company.
        """
        return find_one(self._companies, "id", company_id, "company")

    @reads
    def list_deals(
        self,
        stage: Stage | None = None,
        owner: str | None = None,
        contact_id: str | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Record:
        """List deals with their stage, amount, closing date and owner. All filters that are given must match. Results
        are paginated: pass the value of paging.next.after to get the next page.

        Args:
            stage: Only deals in this stage of the pipeline.
            owner: Only deals of this member of the team, by first name.
            contact_id: Only deals with this contact.
            limit: Deals per page, at most 50.
            after: The cursor of the page to get.
        """
        found = [
            one
            for one in self._deals
            if stage in (None, one["properties"]["dealstage"])
            and owner in (None, one["properties"]["owner"])
            and contact_id in (None, one["properties"]["contact_id"])
        ]
        return _page_of(found, min(limit, 50), after)

    @reads
    def get_deal(self, deal_id: str) -> Record:
        """Get a deal by id with all its properties.

        Args:
            deal_id: The id of the deal.
        """
        return find_one(self._deals, "id", deal_id, "deal")

    @changes
    def create_deal(
        self, dealname: str, contact_id: str, amount: float, owner: str, *, closedate: str, stage: Stage = "demo"
    ) -> Record:
        """Create a deal in the pipeline.

        Args:
            dealname: Name of the deal.
            contact_id: The contact it is made with.
            amount: What it is worth, in euro.
            owner: Who works on it, by first name.
            closedate: When it should be closed, such as 2026-05-31.
            stage: The stage it begins in.
        """
        company = self.get_contact(contact_id)["properties"]["company_id"]
        properties: Record = {
            "dealname": dealname,
            "dealstage": stage,
            "amount": f"{amount:.2f}",
            "closedate": closedate,
            "owner": owner,
            "contact_id": contact_id,
            "company_id": company,
        }
        deal = _stamp(str(3101 + len(self._deals)), Random(dealname), properties)
        self._deals.append(deal)
        return deal

    @changes
    def update_deal(
        self, deal_id: str, stage: Stage | None = None, amount: float | None = None, closedate: str | None = None
    ) -> Record:
        """Change a deal: move it to another stage, or change its amount or closing date.

        Args:
            deal_id: The id of the deal.
            stage: New stage.
            amount: New amount in euro.
            closedate: New closing date.
        """
        deal = self.get_deal(deal_id)
        worth = None if amount is None else f"{amount:.2f}"
        given = {"dealstage": stage, "amount": worth, "closedate": closedate}
        deal["properties"].update({key: value for key, value in given.items() if value is not None})
        return deal

    @reads
    def list_activities(self, deal_id: str) -> Record:
        """List calls, mails and meetings that were logged for a deal, oldest first.

        Args:
            deal_id: The id of the deal.
        """
        found = [one for one in self._activities if one["properties"]["deal_id"] == deal_id]
        return _page_of(found, 50, None)

    @changes
    def log_activity(
        self, deal_id: str, kind: Literal["call", "email", "meeting", "note"], text: str, minutes: int | None = None
    ) -> Record:
        """Log a call, a mail, a meeting or a note for a deal, so that the team sees it in the history.

        Args:
            deal_id: The id of the deal.
            kind: What it was.
            text: What was said or decided.
            minutes: How long it took.
        """
        self.get_deal(deal_id)
        properties: Record = {"deal_id": deal_id, "type": kind, "body": text, "minutes": minutes}
        activity = _stamp(str(9001 + len(self._activities)), Random(text), properties)
        self._activities.append(activity)
        return activity

    @reads
    def list_owners(self) -> Record:
        """List the members of the sales team who can own deals."""
        people = [
            {"id": str(11 + place), "firstName": name, "email": f"{name.lower()}@acme.example"}
            for place, name in enumerate(_OWNERS)
        ]
        return {"results": people}


def _page_of(found: list[Record], limit: int, after: str | None) -> Record:
    start = int(after or 0)
    page: Record = {"total": len(found), "results": found[start : start + limit]}
    return {**page, "paging": {"next": {"after": str(start + limit)}}} if start + limit < len(found) else page
