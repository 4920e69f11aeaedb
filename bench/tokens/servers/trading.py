"""A brokerage account."""

from __future__ import annotations

from random import Random
from typing import Literal

from bench.tokens.servers.records import Record, changes, find_one, reads

from pinfold.tools import BadCall

_SYMBOLS = {
    "ZETA": ("Technology", 227.16),
    "QUAS": ("Technology", 310.23),
    "NEPT": ("Technology", 88.4),
    "ORCA": ("Energy", 45.9),
    "SOLR": ("Energy", 72.75),
    "VITA": ("Health", 134.2),
    "MEDI": ("Health", 18.65),
    "GRNR": ("Consumer", 56.1),
    "FRSH": ("Consumer", 33.33),
    "BNKX": ("Finance", 101.5),
}


class Trading:
    def __init__(self) -> None:
        self._balance = 12_400.0
        self._watchlist = ["ZETA", "VITA"]
        self._holdings = {"QUAS": 10, "ORCA": 40, "FRSH": 25}
        self._orders: list[Record] = [
            {"order_id": 7001, "symbol": "QUAS", "side": "buy", "quantity": 10, "price": 295.5, "status": "filled"},
            {"order_id": 7002, "symbol": "MEDI", "side": "buy", "quantity": 100, "price": 17.0, "status": "open"},
        ]
        self._transactions: list[Record] = [
            {"kind": "deposit", "amount": 15_000.0, "at": "2026-01-08"},
            {"kind": "withdrawal", "amount": 600.0, "at": "2026-02-11"},
        ]

    @reads
    def get_account(self) -> Record:
        """Get the account with its balance, currency, the card it is bound to and the holdings by symbol."""
        return {
            "account_id": "ACC-88",
            "balance": self._balance,
            "currency": "USD",
            "card": "1974",
            "holdings": self._holdings,
        }

    @reads
    def get_quote(self, symbol: str) -> Record:
        """Get the current quote of a stock: price, change of the day in percent, volume, and moving averages.

        Args:
            symbol: Ticker symbol of the stock.
        """
        sector, price = self._find_stock(symbol)
        made = Random(symbol)
        return {
            "symbol": symbol,
            "sector": sector,
            "price": price,
            "change_percent": round(made.uniform(-3, 3), 2),
            "volume_millions": round(made.uniform(0.4, 9), 2),
            "average_5": round(price * made.uniform(0.96, 1.04), 2),
            "average_20": round(price * made.uniform(0.9, 1.1), 2),
        }

    @reads
    def list_symbols(
        self, sector: Literal["Technology", "Energy", "Health", "Consumer", "Finance"] | None = None
    ) -> list[str]:
        """List the ticker symbols that can be traded.

        Args:
            sector: Only stocks of this sector.
        """
        return [symbol for symbol, (kind, _) in _SYMBOLS.items() if sector is None or kind == sector]

    @reads
    def get_price_history(self, symbol: str, days: int = 30) -> list[Record]:
        """Get the closing prices of a stock for the last trading days, oldest first, at most 120.

        Args:
            symbol: Ticker symbol of the stock.
            days: For how many days.
        """
        _, price = self._find_stock(symbol)
        made = Random(f"{symbol} closes")
        closes: list[Record] = []
        for day in range(120):
            price = round(price * made.uniform(0.975, 1.026), 2)
            closes.append({"date": f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}", "close": price})
        return closes[-min(days, 120) :]

    @reads
    def get_watchlist(self) -> list[str]:
        """Get the symbols on your watchlist."""
        return list(self._watchlist)

    @changes
    def add_to_watchlist(self, symbol: str) -> list[str]:
        """Add a stock to your watchlist and get the list as it is then.

        Args:
            symbol: Ticker symbol of the stock.
        """
        self._find_stock(symbol)
        if symbol not in self._watchlist:
            self._watchlist.append(symbol)
        return list(self._watchlist)

    @changes
    def remove_from_watchlist(self, symbol: str) -> list[str]:
        """Remove a stock from your watchlist and get the list as it is then.

        Args:
            symbol: Ticker symbol of the stock.
        """
        if symbol not in self._watchlist:
            raise BadCall(f"{symbol} is not on the watchlist")
        self._watchlist.remove(symbol)
        return list(self._watchlist)

    @changes
    def place_order(
        self,
        symbol: str,
        side: Literal["buy", "sell"],
        quantity: int,
        price: float,
        kind: Literal["limit", "market"] = "limit",
    ) -> Record:
        """Place an order to buy or sell a stock. A limit order stays open until the price is reached or it is
        cancelled. Buying needs enough balance, selling enough holdings.

        Args:
            symbol: Ticker symbol of the stock.
            side: Whether to buy or to sell.
            quantity: Number of shares.
            price: Limit price per share in dollars; for market orders the price last seen.
            kind: Limit or market order.
        """
        self._find_stock(symbol)
        if side == "buy" and quantity * price > self._balance:
            raise BadCall(f"the balance of {self._balance:.2f} is not enough for {quantity * price:.2f}")
        if side == "sell" and quantity > self._holdings.get(symbol, 0):
            raise BadCall(f"you hold {self._holdings.get(symbol, 0)} shares of {symbol}")
        order: Record = {
            "order_id": 7001 + len(self._orders),
            "symbol": symbol,
            "side": side,
            "quantity": quantity,
            "price": price,
            "status": "filled" if kind == "market" else "open",
        }
        self._orders.append(order)
        if kind == "market":
            sign = 1 if side == "buy" else -1
            self._balance = round(self._balance - sign * quantity * price, 2)
            self._holdings[symbol] = self._holdings.get(symbol, 0) + sign * quantity
        return order

    @reads
    def get_order(self, order_id: int) -> Record:
        """Get the details of an order.

        Args:
            order_id: The id of the order.
        """
        return find_one(self._orders, "order_id", order_id, "order")

    @reads
    def list_orders(self, status: Literal["open", "filled", "cancelled", "all"] = "all") -> list[Record]:
        """List your orders, oldest first.

        Args:
            status: Only orders in this state.
        """
        return [one for one in self._orders if status in ("all", one["status"])]

    @changes
    def cancel_order(self, order_id: int) -> Record:
        """Cancel an order that is still open.

        Args:
            order_id: The id of the order.
        """
        order = self.get_order(order_id)
        if order["status"] != "open":
            raise BadCall(f"order {order_id} is {order['status']}")
        order["status"] = "cancelled"
        return {"order_id": order_id, "status": "cancelled"}

    @changes
    def fund_account(self, amount: float) -> Record:
        """Pay money into the account from the card it is bound to.

        Args:
            amount: How much, in dollars.
        """
        return self._move_money("deposit", amount, amount)

    @changes
    def withdraw_funds(self, amount: float) -> Record:
        """Pay money out of the account to the card it is bound to.

        Args:
            amount: How much, in dollars; no more than the balance.
        """
        if amount > self._balance:
            raise BadCall(f"the balance is {self._balance:.2f}")
        return self._move_money("withdrawal", amount, -amount)

    @reads
    def list_transactions(self, since: str | None = None) -> list[Record]:
        """List deposits and withdrawals, oldest first.

        Args:
            since: Only those of this day or later, such as 2026-01-31.
        """
        return [one for one in self._transactions if since is None or one["at"] >= since]

    def _find_stock(self, symbol: str) -> tuple[str, float]:
        if symbol not in _SYMBOLS:
            raise BadCall(f"there is no stock {symbol!r}; list_symbols names them")
        return _SYMBOLS[symbol]

    def _move_money(self, kind: str, amount: float, change: float) -> Record:
        self._balance = round(self._balance + change, 2)
        self._transactions.append({"kind": kind, "amount": amount, "at": "2026-03-02"})
        return {"kind": kind, "amount": amount, "balance": self._balance}
