"""The back office of a web shop: products, orders, customers, stock."""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias

from bench.tokens.servers.records import Record, changes, find_one, page_of, reads, without

from pinfold.tools import BadCall

Status: TypeAlias = Literal["pending", "paid", "shipped", "delivered", "cancelled", "refunded"]
_THINGS = ("Kettle", "Lamp", "Desk", "Chair", "Backpack", "Headphones", "Notebook", "Mug", "Blanket", "Clock")
_COLOURS = ("white", "black", "green")
_NAMES = ("Ada Berg", "Bo Chen", "Cleo Diaz", "Dan Eliot", "Eva Frost", "Finn Gray", "Gina Holt", "Hugo Ito")
_STATES: tuple[Status, ...] = ("pending", "paid", "shipped", "delivered", "delivered", "cancelled")


class Shop:
    def __init__(self) -> None:
        made = Random(14)
        self._products: list[Record] = [
            {
                "sku": f"SKU-{place:03d}",
                "name": f"{thing} {colour}",
                "category": "home" if thing in ("Kettle", "Lamp", "Mug", "Blanket", "Clock") else "office",
                "price": round(made.uniform(8, 240), 2),
                "stock": made.randint(0, 60),
                "reorder_level": 10,
                "rating": round(made.uniform(3, 5), 1),
            }
            for place, (thing, colour) in enumerate(((t, c) for t in _THINGS for c in _COLOURS), start=1)
        ]
        self._customers: list[Record] = [
            {
                "customer_id": f"C{place:02d}",
                "name": name,
                "email": f"{name.split()[0].lower()}@mail.example",
                "country": made.choice(("DE", "FR", "US")),
                "tier": made.choice(("basic", "gold")),
                "since": f"202{made.randint(0, 5)}-0{made.randint(1, 9)}-11",
            }
            for place, name in enumerate(_NAMES, start=1)
        ]
        self._orders: list[Record] = []
        for number in range(1, 81):
            lines: list[Record] = [
                {"sku": product["sku"], "quantity": made.randint(1, 3), "price": product["price"]}
                for product in made.sample(self._products, made.randint(1, 3))
            ]
            self._orders.append(
                {
                    "order_id": f"O-{5000 + number}",
                    "customer_id": made.choice(self._customers)["customer_id"],
                    "status": made.choice(_STATES),
                    "placed_at": f"2026-0{1 + number // 41}-{1 + number % 28:02d}",
                    "lines": lines,
                    "total": round(sum(line["quantity"] * line["price"] for line in lines), 2),
                    "currency": "EUR",
                }
            )

    @reads
    def search_products(
        self,
        query: str = "",
        category: Literal["home", "office", "all"] = "all",
        max_price: float | None = None,
        in_stock: bool = False,
        page: int = 1,
    ) -> Record:
        """Search the product catalogue by name, category, price and availability. Results come 30 to a page, ordered
        by SKU, with price, stock and rating of each product.

        Args:
            query: Text that the name of the product must contain, whatever its case.
            category: Only products of this category.
            max_price: Only products that cost no more than this, in euro.
            in_stock: Only products of which there is at least one in stock.
            page: Page number for pagination, starting at 1.
        """
        found = [
            one
            for one in self._products
            if query.lower() in one["name"].lower()
            and category in ("all", one["category"])
            and (max_price is None or one["price"] <= max_price)
            and (one["stock"] > 0 or not in_stock)
        ]
        return page_of(found, page, 30, "products")

    @reads
    def get_product(self, sku: str) -> Record:
        """Get one product with price, stock, reorder level and rating.

        Args:
            sku: Stock keeping unit of the product.
        """
        return find_one(self._products, "sku", sku, "product")

    @reads
    def list_orders(
        self,
        *,
        status: Status | None = None,
        customer_id: str | None = None,
        placed_after: str | None = None,
        placed_before: str | None = None,
        page: int = 1,
        per_page: int = 25,
    ) -> Record:
        """List orders with their lines and totals, oldest first. All filters that are given must match. Use the page
        parameter to go through more results than fit on a page.

        Args:
            status: Only orders in this state.
            customer_id: Only orders of this customer.
            placed_after: Only orders placed on this day or later, such as 2026-01-31.
            placed_before: Only orders placed before this day.
            page: Page number for pagination, starting at 1.
            per_page: Orders per page, at most 30.
        """
        found = [
            one
            for one in self._orders
            if (status is None or one["status"] == status)
            and (customer_id is None or one["customer_id"] == customer_id)
            and (placed_after is None or one["placed_at"] >= placed_after)
            and (placed_before is None or one["placed_at"] < placed_before)
        ]
        return page_of(found, page, min(per_page, 30), "orders")

    @reads
    def get_order(self, order_id: str) -> Record:
        """Get one order with its lines, total, state and customer.

        Args:
            order_id: The id of the order, such as O-1234.
        """
        return find_one(self._orders, "order_id", order_id, "order")

    @changes
    def create_order(self, customer_id: str, sku: str, quantity: int = 1, note: str = "") -> Record:
        """Place an order on behalf of a customer. The stock is reduced at once; the order is pending until it is paid.

        Args:
            customer_id: Who orders.
            sku: What is ordered.
            quantity: How many of it.
            note: A note for the warehouse.
        """
        self.get_customer(customer_id)
        product = self.get_product(sku)
        if product["stock"] < quantity:
            raise BadCall(f"only {product['stock']} of {sku} are in stock")
        product["stock"] -= quantity
        order: Record = {
            "order_id": f"O-{5001 + len(self._orders)}",
            "customer_id": customer_id,
            "status": "pending",
            "placed_at": "2026-03-02",
            "lines": [{"sku": sku, "quantity": quantity, "price": product["price"]}],
            "total": round(quantity * product["price"], 2),
            "currency": "EUR",
        }
        self._orders.append(order)
        return {**order, "note": note}

    @changes
    def cancel_order(self, order_id: str, reason: str = "") -> Record:
        """Cancel an order that has not been shipped yet. Its products go back into stock.

        Args:
            order_id: The id of the order.
            reason: Why, for the records.
        """
        order = self.get_order(order_id)
        if order["status"] not in ("pending", "paid"):
            raise BadCall(f"{order_id} is {order['status']} and cannot be cancelled")
        order["status"] = "cancelled"
        for line in order["lines"]:
            self.get_product(line["sku"])["stock"] += line["quantity"]
        return {"order_id": order_id, "status": "cancelled", "reason": reason}

    @changes
    def refund_order(self, order_id: str, amount: float | None = None) -> Record:
        """Refund an order that was delivered, in whole or in part. The money goes back the way it came.

        Args:
            order_id: The id of the order.
            amount: How much, in the currency of the order; the whole total unless given.
        """
        order = self.get_order(order_id)
        if order["status"] != "delivered":
            raise BadCall(f"{order_id} is {order['status']}; only delivered orders can be refunded")
        order["status"] = "refunded"
        return {"order_id": order_id, "refunded": order["total"] if amount is None else amount}

    @changes
    def update_stock(self, sku: str, change: int, reason: Literal["delivery", "count", "damage"] = "count") -> Record:
        """Change the stock of a product by a number of pieces, up or down, and record why.

        Args:
            sku: Stock keeping unit of the product.
            change: Pieces to add, or to take away if negative.
            reason: Why the stock changes.
        """
        product = self.get_product(sku)
        product["stock"] += change
        return {"sku": sku, "stock": product["stock"], "reason": reason}

    @changes
    def set_price(self, sku: str, price: float) -> Record:
        """Set the price of a product, from now on. Orders that were placed before keep theirs.

        Args:
            sku: Stock keeping unit of the product.
            price: The new price in euro.
        """
        product = self.get_product(sku)
        old, product["price"] = product["price"], price
        return {"sku": sku, "old_price": old, "price": price}

    @reads
    def list_low_stock(self, threshold: int | None = None) -> list[Record]:
        """List the products whose stock is below their reorder level, or below a threshold of your own.

        Args:
            threshold: Pieces below which a product is listed; the reorder level of each product unless given.
        """
        return [
            without(one, "category", "rating")
            for one in self._products
            if one["stock"] < (one["reorder_level"] if threshold is None else threshold)
        ]

    @reads
    def list_customers(self, country: str | None = None, tier: Literal["basic", "gold"] | None = None) -> list[Record]:
        """List customers with their names, mail addresses, countries and tiers.

        Args:
            country: Only customers of this country, by its two-letter code.
            tier: Only customers of this tier.
        """
        return [
            one
            for one in self._customers
            if (country is None or one["country"] == country) and (tier is None or one["tier"] == tier)
        ]

    @reads
    def get_customer(self, customer_id: str) -> Record:
        """Get one customer with name, mail address, country and tier.

        Args:
            customer_id: The id of the customer, such as C01.
        """
        return find_one(self._customers, "customer_id", customer_id, "customer")

    @reads
    def track_shipment(self, order_id: str) -> Record:
        """Get where the shipment of an order is, with the carrier, its number there and the expected day of delivery.

        Args:
            order_id: The id of the order.
        """
        order = self.get_order(order_id)
        if order["status"] not in ("shipped", "delivered"):
            raise BadCall(f"{order_id} is {order['status']}: there is no shipment")
        number = int(order_id[2:])
        return {
            "order_id": order_id,
            "carrier": ("Swift", "PostOne")[number % 2],
            "tracking_number": f"TR{number * 37}",
            "status": "delivered" if order["status"] == "delivered" else "in transit",
            "expected": f"2026-03-0{3 + number % 5}",
        }
