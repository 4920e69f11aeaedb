"""Accounts, cards and payments of one customer of a bank."""

from __future__ import annotations

from random import Random
from typing import Literal

from bench.tokens.servers.records import Record, changes, find_one, page_of, reads

from pinfold.tools import BadCall

_SHOPS = {
    "groceries": ("Green Market", "Corner Shop"),
    "transport": ("City Trains", "Fuel & Go"),
    "housing": ("Maple Estates", "Power Works"),
    "leisure": ("Cinema One", "Book Nook"),
    "dining": ("Casa Lupo", "Noodle Bar"),
}


class Bank:
    def __init__(self) -> None:
        made = Random(19)
        self._accounts: list[Record] = [
            {
                "account_id": "CHK-1",
                "kind": "checking",
                "balance": 3240.55,
                "currency": "EUR",
                "iban": "DE00 1111 2222",
            },
            {
                "account_id": "SAV-1",
                "kind": "savings",
                "balance": 18_900.0,
                "currency": "EUR",
                "iban": "DE00 3333 4444",
            },
        ]
        self._cards: list[Record] = [
            {"card_id": "4417", "account_id": "CHK-1", "kind": "debit", "frozen": False, "monthly_limit": 2000},
            {"card_id": "9902", "account_id": "CHK-1", "kind": "credit", "frozen": False, "monthly_limit": 5000},
        ]
        self._payees: list[Record] = [
            {"payee_id": "P1", "name": "Maple Estates", "iban": "DE00 5555 6666"},
            {"payee_id": "P2", "name": "Power Works", "iban": "DE00 7777 8888"},
        ]
        self._standing: list[Record] = []
        self._budgets: dict[str, float] = {}
        self._transactions: list[Record] = []
        for number in range(1, 151):
            category = made.choice(tuple(_SHOPS))
            self._transactions.append(
                {
                    "transaction_id": f"T{number:04d}",
                    "account_id": "CHK-1",
                    "date": f"2026-{1 + number // 76:02d}-{1 + (number * 28 // 76) % 28:02d}",
                    "amount": -round(made.uniform(3, 140) * (6 if category == "housing" else 1), 2),
                    "category": category,
                    "merchant": made.choice(_SHOPS[category]),
                    "status": "booked",
                }
            )

    @reads
    def list_accounts(self) -> list[Record]:
        """List your accounts with their balances, currencies and IBANs."""
        return self._accounts

    @reads
    def get_balance(self, account_id: str) -> Record:
        """Get the balance of an account, as booked.

        Args:
            account_id: The id of the account.
        """
        account = self._account(account_id)
        return {"account_id": account_id, "balance": account["balance"], "currency": account["currency"]}

    @reads
    def list_transactions(
        self,
        account_id: str,
        *,
        start_date: str | None = None,
        end_date: str | None = None,
        category: Literal["groceries", "transport", "housing", "leisure", "dining"] | None = None,
        merchant: str | None = None,
        page: int = 1,
        per_page: int = 40,
    ) -> Record:
        """List the transactions of an account, oldest first. Amounts that left the account are negative. Results are
        paginated.

        Args:
            account_id: The id of the account.
            start_date: Only transactions of this day or later, such as 2026-01-31.
            end_date: Only transactions of this day or earlier.
            category: Only transactions of this category.
            merchant: Only transactions with this merchant.
            page: Page number for pagination, starting at 1.
            per_page: Transactions per page, at most 50.
        """
        self._account(account_id)
        found = [
            one
            for one in self._transactions
            if one["account_id"] == account_id
            and (start_date is None or one["date"] >= start_date)
            and (end_date is None or one["date"] <= end_date)
            and (category is None or one["category"] == category)
            and (merchant is None or one["merchant"] == merchant)
        ]
        return page_of(found, page, min(per_page, 50), "transactions")

    @changes
    def transfer(self, from_account: str, to_account: str, amount: float, reference: str = "") -> Record:
        """Transfer money between two of your own accounts. It arrives at once.

        Args:
            from_account: The account the money leaves.
            to_account: The account the money goes to.
            amount: How much, in the currency of the account.
            reference: Text for both statements.
        """
        source, target = self._account(from_account), self._account(to_account)
        if amount > source["balance"]:
            raise BadCall(f"{from_account} has only {source['balance']:.2f}")
        source["balance"] = round(source["balance"] - amount, 2)
        target["balance"] = round(target["balance"] + amount, 2)
        return {from_account: source["balance"], to_account: target["balance"], "reference": reference}

    @changes
    def pay(self, payee_id: str, amount: float, reference: str, from_account: str = "CHK-1") -> Record:
        """Pay a bill to one of your payees.

        Args:
            payee_id: Who is paid, as list_payees gives it.
            amount: How much, in euro.
            reference: Number of the bill, for the payee.
            from_account: The account the money leaves.
        """
        payee = find_one(self._payees, "payee_id", payee_id, "payee")
        account = self._account(from_account)
        if amount > account["balance"]:
            raise BadCall(f"{from_account} has only {account['balance']:.2f}")
        account["balance"] = round(account["balance"] - amount, 2)
        return {"paid": amount, "to": payee["name"], "reference": reference, "balance": account["balance"]}

    @reads
    def list_payees(self) -> list[Record]:
        """List the payees you have saved, with their ids."""
        return self._payees

    @changes
    def add_payee(self, name: str, iban: str) -> Record:
        """Save a new payee.

        Args:
            name: Name of the person or company.
            iban: Their account.
        """
        payee: Record = {"payee_id": f"P{len(self._payees) + 1}", "name": name, "iban": iban}
        self._payees.append(payee)
        return payee

    @changes
    def schedule_transfer(
        self, from_account: str, to_account: str, amount: float, day_of_month: int, first_month: str = "2026-04"
    ) -> Record:
        """Set up a standing order: the same transfer every month.

        Args:
            from_account: The account the money leaves.
            to_account: The account the money goes to.
            amount: How much each time.
            day_of_month: On which day, from 1 to 28.
            first_month: When it begins.
        """
        order: Record = {
            "order_id": f"SO{len(self._standing) + 1}",
            "from": from_account,
            "to": to_account,
            "amount": amount,
            "next": f"{first_month}-{day_of_month:02d}",
        }
        self._standing.append(order)
        return order

    @reads
    def list_cards(self) -> list[Record]:
        """List your cards with their accounts, limits, and whether they are frozen."""
        return self._cards

    @changes
    def freeze_card(self, card_id: str, frozen: bool = True) -> Record:
        """Freeze a card, so that nothing can be paid with it, or release it again.

        Args:
            card_id: The last four digits of the card.
            frozen: False to release it.
        """
        card = find_one(self._cards, "card_id", card_id, "card")
        card["frozen"] = frozen
        return card

    @changes
    def set_card_limit(self, card_id: str, monthly_limit: int) -> Record:
        """Set how much can be paid with a card in a month.

        Args:
            card_id: The last four digits of the card.
            monthly_limit: The limit in euro.
        """
        card = find_one(self._cards, "card_id", card_id, "card")
        card["monthly_limit"] = monthly_limit
        return card

    @changes
    def set_budget(self, category: str, monthly_amount: float) -> Record:
        """Set a budget for a category of spending; you are told when 80 percent of it are used.

        Args:
            category: The category.
            monthly_amount: How much may be spent in a month, in euro.
        """
        self._budgets[category] = monthly_amount
        return {"category": category, "monthly_amount": monthly_amount, "budgets": len(self._budgets)}

    def _account(self, account_id: str) -> Record:
        return find_one(self._accounts, "account_id", account_id, "account")
