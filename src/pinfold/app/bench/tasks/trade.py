"""Conversations about orders, money and shares."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="reorder what runs out",
        domain="shops",
        servers=("shop", "messages"),
        turns=(
            Turn(
                asks="Which products are below their reorder level?",
                does='low = list_low_stock()\nprint(len(low), [(one["sku"], one["stock"]) for one in low])',
                says="{0} products: {1}.",
            ),
            Turn(
                asks="A delivery of 40 pieces came for each of them. Book that.",
                does='for one in low:\n    update_stock(sku=one["sku"], change=40, reason="delivery")\nprint(len(list_low_stock()))',
                says="Booked; {0} products are still low.",
            ),
            Turn(
                asks="Lower the price of the cheapest of them by 10 percent, please.",
                does='cheap = min(low, key=lambda one: one["price"])\nprint(cheap["name"], set_price(sku=cheap["sku"], price=round(cheap["price"] * 0.9, 2))["price"])',
                says="{0} costs {1} euro now.",
            ),
            Turn(
                asks="Tell Emil that the delivery has been booked.",
                does='emil = get_user_id(name="Emil")["user_id"]\nprint(send_message(receiver_id=emil, text="The delivery has been booked.")["delivered"])',
                says="Emil knows ({0}).",
            ),
        ),
    ),
    Task(
        name="revenue of two months",
        domain="shops",
        servers=("shop", "drive"),
        turns=(
            Turn(
                asks="What was the total of all orders that were not cancelled, by month?",
                does='from collections import defaultdict\norders, page = [], 1\nwhile True:\n    got = list_orders(page=page)\n    orders += got["orders"]\n    page += 1\n    if not got["has_more"]:\n        break\nmonths = defaultdict(float)\nfor one in orders:\n    if one["status"] != "cancelled":\n        months[one["placed_at"][:7]] += one["total"]\nprint({month: round(total, 2) for month, total in months.items()})',
                says="In euro: {0}.",
            ),
            Turn(
                asks="Which three products brought in the most?",
                does='sold = defaultdict(float)\nfor one in orders:\n    if one["status"] != "cancelled":\n        for line in one["lines"]:\n            sold[line["sku"]] += line["quantity"] * line["price"]\nbest = sorted(sold, key=sold.get, reverse=True)[:3]\nprint([(get_product(sku=sku)["name"], round(sold[sku], 2)) for sku in best])',
                says="{0}.",
            ),
            Turn(
                asks="And who is the best customer?",
                does='by = defaultdict(float)\nfor one in orders:\n    if one["status"] != "cancelled":\n        by[one["customer_id"]] += one["total"]\nbest = max(by, key=by.get)\nprint(get_customer(customer_id=best)["name"], round(by[best], 2))',
                says="{0}, with {1} euro.",
            ),
            Turn(
                asks="Save the revenue by month as /reports/shop.txt.",
                does='text = "".join(f"{month} {total:.2f}\\n" for month, total in months.items())\nprint(write_file(path="/reports/shop.txt", content=text)["path"])',
                says="It is in {0}.",
            ),
        ),
    ),
    Task(
        name="a customer changes her mind",
        domain="shops",
        servers=("shop",),
        turns=(
            Turn(
                asks="Order two black lamps for customer C03.",
                does='lamp = search_products(query="lamp black")["products"][0]\norder = create_order(customer_id="C03", sku=lamp["sku"], quantity=2)\nprint(order["order_id"], order["total"])',
                says="The order is {0}, {1} euro in all.",
            ),
            Turn(
                asks="She wants green ones instead. Cancel it and order those.",
                does='cancel_order(order_id=order["order_id"], reason="other colour")\ngreen = search_products(query="lamp green")["products"][0]\norder = create_order(customer_id="C03", sku=green["sku"], quantity=2)\nprint(order["order_id"], order["total"])',
                says="Cancelled; the new order is {0}, {1} euro.",
            ),
            Turn(
                asks="How many green lamps are left?",
                does='print(get_product(sku=green["sku"])["stock"])',
                says="{0} are left.",
            ),
            Turn(
                asks="What is her mail address?",
                does='print(get_customer(customer_id="C03")["email"])',
                says="It is {0}.",
            ),
        ),
    ),
    Task(
        name="where are the parcels",
        domain="shops",
        servers=("shop", "messages"),
        turns=(
            Turn(
                asks="Which orders are on their way, and when do they arrive?",
                does='shipped = list_orders(status="shipped")["orders"]\nparcels = [track_shipment(order_id=one["order_id"]) for one in shipped]\nprint([(one["order_id"], one["carrier"], one["expected"]) for one in parcels])',
                says="{0}.",
            ),
            Turn(
                asks="Tell Emil how many are with Swift.",
                does='swift = sum(one["carrier"] == "Swift" for one in parcels)\nsend_message(receiver_id=get_user_id(name="Emil")["user_id"], text=f"{swift} parcels are with Swift.")\nprint(swift)',
                says="I told Emil: {0}.",
            ),
        ),
    ),
    Task(
        name="refund a delivery",
        domain="shops",
        servers=("shop", "bank"),
        turns=(
            Turn(
                asks="What did order O-5013 consist of, and what is its state?",
                does='print(get_order(order_id="O-5013"))',
                says="Its lines and its state are as shown.",
                reads=True,
            ),
            Turn(
                asks="List the delivered orders of customer C01.",
                does='done = list_orders(status="delivered", customer_id="C01")["orders"]\nprint([(one["order_id"], one["total"]) for one in done])',
                says="{0}.",
            ),
            Turn(
                asks="Refund the first of them in whole.",
                does='print(refund_order(order_id=done[0]["order_id"])["refunded"])',
                says="{0} euro are refunded.",
            ),
            Turn(
                asks="Is there enough on the checking account for that?",
                does='print(get_balance(account_id="CHK-1")["balance"])',
                says="The checking account has {0} euro.",
            ),
            Turn(
                asks="Move 200 euro from savings to checking anyway.",
                does='print(transfer(from_account="SAV-1", to_account="CHK-1", amount=200)["CHK-1"])',
                says="Checking has {0} euro now.",
            ),
        ),
    ),
    Task(
        name="what did I spend",
        domain="banking",
        servers=("bank",),
        turns=(
            Turn(
                asks="What did I spend by category in February 2026?",
                does='from collections import defaultdict\nspent, page = defaultdict(float), 1\nwhile True:\n    got = list_transactions(account_id="CHK-1", start_date="2026-02-01", end_date="2026-02-28", page=page)\n    for one in got["transactions"]:\n        spent[one["category"]] -= one["amount"]\n    page += 1\n    if not got["has_more"]:\n        break\nprint({name: round(amount, 2) for name, amount in spent.items()})',
                says="In euro: {0}.",
            ),
            Turn(
                asks="And how much of dining was at Casa Lupo, in both months?",
                does='lupo = list_transactions(account_id="CHK-1", merchant="Casa Lupo")["transactions"]\nprint(round(-sum(one["amount"] for one in lupo), 2), len(lupo))',
                says="{0} euro in {1} visits.",
            ),
            Turn(
                asks="Set a dining budget of 300 a month.",
                does='print(set_budget(category="dining", monthly_amount=300)["monthly_amount"])',
                says="The budget is {0} euro a month.",
            ),
        ),
    ),
    Task(
        name="pay the rent",
        domain="banking",
        servers=("bank", "calendar"),
        turns=(
            Turn(
                asks="Pay 950 euro to Maple Estates, reference 'Rent March'.",
                does='payee = next(one for one in list_payees() if one["name"] == "Maple Estates")\nprint(pay(payee_id=payee["payee_id"], amount=950, reference="Rent March")["balance"])',
                says="Paid; {0} euro are left.",
            ),
            Turn(
                asks="Save 250 each month on the 3rd from now on.",
                does='print(schedule_transfer(from_account="CHK-1", to_account="SAV-1", amount=250, day_of_month=3)["next"])',
                says="The first transfer is on {0}.",
            ),
            Turn(
                asks="I lost my credit card. Freeze it.",
                does='card = next(one for one in list_cards() if one["kind"] == "credit")\nprint(freeze_card(card_id=card["card_id"])["card_id"])',
                says="The card ending in {0} is frozen.",
            ),
            Turn(
                asks="And lower the limit of the other one to 1000.",
                does='print(set_card_limit(card_id="4417", monthly_limit=1000)["monthly_limit"])',
                says="Its limit is {0} euro a month.",
            ),
            Turn(
                asks="Put a reminder 'Rent' into my private calendar on 1 April 2026, 9:00 to 9:15.",
                does='event = create_event(title="Rent", start="2026-04-01T09:00:00", end="2026-04-01T09:15:00", calendar="private")\nprint(event["id"])',
                says="Done: {0}.",
            ),
        ),
    ),
    Task(
        name="buy on the dip",
        domain="trading",
        servers=("trading", "support"),
        turns=(
            Turn(
                asks="What does ZETA cost?",
                does='zeta = get_quote(symbol="ZETA")\nprint(zeta["price"], zeta["change_percent"])',
                says="{0} dollars, {1} percent today.",
            ),
            Turn(
                asks="Buy 20 at a limit 2 percent below that.",
                does='order = place_order(symbol="ZETA", side="buy", quantity=20, price=round(zeta["price"] * 0.98, 2))\nprint(order["order_id"], order["price"])',
                says="Order {0} is open at {1}.",
            ),
            Turn(
                asks="Show me that order.",
                does='print(get_order(order_id=order["order_id"]))',
                says="It is open, 20 shares of ZETA at the limit above.",
                reads=True,
            ),
            Turn(
                asks="Cancel it, I changed my mind.",
                does='print(cancel_order(order_id=order["order_id"])["status"])',
                says="It is {0}.",
            ),
            Turn(
                asks="What is my balance?",
                does='print(get_account()["balance"])',
                says="{0} dollars.",
            ),
            Turn(
                asks="Open a ticket 'Order 7003 was a mistake', low priority.",
                does='print(create_ticket(title="Order 7003 was a mistake", priority="low")["ticket_id"])',
                says="It is ticket {0}.",
            ),
        ),
    ),
    Task(
        name="the energy stocks",
        domain="trading",
        servers=("trading", "messages"),
        turns=(
            Turn(
                asks="Put all energy stocks on my watchlist.",
                does='for symbol in list_symbols(sector="Energy"):\n    add_to_watchlist(symbol=symbol)\nprint(get_watchlist())',
                says="Your watchlist is {0}.",
            ),
            Turn(
                asks="Which stock on the list moved most over the last 60 days?",
                does='moves = {}\nfor symbol in get_watchlist():\n    closes = [one["close"] for one in get_price_history(symbol=symbol, days=60)]\n    moves[symbol] = round((closes[-1] / closes[0] - 1) * 100, 1)\nprint(max(moves, key=lambda one: abs(moves[one])), moves)',
                says="{0}; in percent: {1}.",
            ),
            Turn(
                asks="Take VITA off the list.",
                does='print(remove_from_watchlist(symbol="VITA"))',
                says="The list is {0}.",
            ),
            Turn(
                asks="Send the list to Dev.",
                does='dev = get_user_id(name="Dev")["user_id"]\nprint(send_message(receiver_id=dev, text=", ".join(get_watchlist()))["delivered"])',
                says="Dev has it ({0}).",
            ),
        ),
    ),
    Task(
        name="how volatile is my portfolio",
        domain="trading",
        servers=("trading", "messages"),
        turns=(
            Turn(
                asks="What is my portfolio worth at current prices?",
                does='holdings = get_account()["holdings"]\nprices = {symbol: get_quote(symbol=symbol)["price"] for symbol in holdings}\nprint(round(sum(count * prices[symbol] for symbol, count in holdings.items()), 2))',
                says="{0} dollars.",
            ),
            Turn(
                asks="And the standard deviation of daily returns of each holding over the last 90 days?",
                does='from statistics import stdev\nrisk = {}\nfor symbol in holdings:\n    closes = [one["close"] for one in get_price_history(symbol=symbol, days=90)]\n    risk[symbol] = round(stdev(b / a - 1 for a, b in zip(closes, closes[1:])) * 100, 2)\nprint(risk)',
                says="In percent a day: {0}.",
            ),
            Turn(
                asks="Sell half of the most volatile one at the market price.",
                does='worst = max(risk, key=risk.get)\nsold = place_order(symbol=worst, side="sell", quantity=holdings[worst] // 2, price=prices[worst], kind="market")\nprint(sold["quantity"], worst, sold["status"])',
                says="Sold {0} shares of {1}: {2}.",
            ),
            Turn(
                asks="What is the balance then?",
                does='print(get_account()["balance"])',
                says="{0} dollars.",
            ),
            Turn(
                asks="Tell Ben what I sold.",
                does='ben = get_user_id(name="Ben")["user_id"]\nprint(send_message(receiver_id=ben, text=f"I sold {sold[\'quantity\']} shares of {worst}.")["delivered"])',
                says="Ben knows ({0}).",
            ),
        ),
    ),
    Task(
        name="money in and out",
        domain="trading",
        servers=("trading",),
        turns=(
            Turn(
                asks="Pay 500 dollars into the trading account.",
                does='print(fund_account(amount=500)["balance"])',
                says="The balance is {0} dollars.",
            ),
            Turn(
                asks="What did I pay in and out so far?",
                does='moved = list_transactions()\nprint({kind: sum(one["amount"] for one in moved if one["kind"] == kind) for kind in ("deposit", "withdrawal")})',
                says="{0}.",
            ),
        ),
    ),
)
