"""Conversations about trips, the car, posts and sums."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="to Paris and back",
        domain="travel",
        servers=("travel", "calendar"),
        turns=(
            Turn(
                asks="What is the cheapest direct flight from Berlin to Paris on 1 April 2026?",
                does='out = search_flights(origin="BER", destination="CDG", date="2026-04-01", max_stops=0)\nbest = min(out, key=lambda one: one["price"])\nprint(best["flight_id"], best["departs"], best["price"])',
                says="{0} at {1} for {2} euro.",
            ),
            Turn(
                asks="Book it for Anna Berg.",
                does='flight = book_flight(flight_id=best["flight_id"], date=best["date"], price=best["price"], traveller="Anna Berg")\nprint(flight["booking_id"])',
                says="Booked as {0}.",
            ),
            Turn(
                asks="And a hotel there with at least 3 stars, the cheapest, for two nights.",
                does='hotel = min(search_hotels(city="Paris", min_stars=3), key=lambda one: one["price_per_night"])\nstay = book_hotel(hotel_id=hotel["hotel_id"], check_in="2026-04-01", nights=2)\nprint(hotel["name"], stay["booking_id"], stay["price"])',
                says="{0}, booked as {1} for {2} euro.",
            ),
            Turn(
                asks="Insure the flight, basic cover.",
                does='print(purchase_insurance(booking_id=flight["booking_id"])["price"])',
                says="The insurance costs {0} euro.",
            ),
            Turn(
                asks="What is the total in dollars?",
                does='total = flight["price"] + stay["price"] + get_booking(booking_id="BK-305")["price"]\nprint(convert_currency(amount=total, from_currency="EUR", to_currency="USD")["amount"])',
                says="{0} dollars.",
            ),
            Turn(
                asks="Put the flight into my calendar, two hours from its departure.",
                does='from datetime import datetime, timedelta\nstart = datetime.fromisoformat(f"2026-04-01T{best[\'departs\']}:00")\nevent = create_event(title="Flight to Paris", start=start.isoformat(), end=(start + timedelta(hours=2)).isoformat())\nprint(event["start"])',
                says="It is in your calendar at {0}.",
            ),
        ),
    ),
    Task(
        name="call the trip off",
        domain="travel",
        servers=("travel", "messages"),
        turns=(
            Turn(
                asks="What have I booked?",
                does="print(list_bookings())",
                says="A flight and a hotel, both on 20 March 2026 and confirmed.",
                reads=True,
            ),
            Turn(
                asks="Cancel both. What do I get back?",
                does='back = [cancel_booking(booking_id=one)["refund"] for one in ("BK-301", "BK-302")]\nprint(round(sum(back), 2))',
                says="You get back {0} euro.",
            ),
            Turn(
                asks="Tell Anna's deputy Ben that the trip is off.",
                does='ben = get_user_id(name="Ben")["user_id"]\nprint(send_message(receiver_id=ben, text="The trip is off.")["delivered"])',
                says="Ben knows ({0}).",
            ),
        ),
    ),
    Task(
        name="the best day to fly",
        domain="travel",
        servers=("travel", "messages"),
        turns=(
            Turn(
                asks="On which day of the first week of May 2026 is a business flight from London to New York cheapest?",
                does='days = {}\nfor day in range(1, 8):\n    found = search_flights(origin="LHR", destination="JFK", date=f"2026-05-{day:02d}", cabin="business")\n    days[f"2026-05-{day:02d}"] = min(one["price"] for one in found)\nbest = min(days, key=days.get)\nprint(best, days[best])',
                says="On {0}, for {1} euro.",
            ),
            Turn(
                asks="How much would one save against the dearest of these days?",
                does="print(round(max(days.values()) - days[best], 2))",
                says="{0} euro.",
            ),
            Turn(
                asks="Tell Dev the day and the price.",
                does='dev = get_user_id(name="Dev")["user_id"]\nprint(send_message(receiver_id=dev, text=f"Cheapest: {best}, {days[best]} euro")["delivered"])',
                says="Dev knows ({0}).",
            ),
        ),
    ),
    Task(
        name="pack for the weather",
        domain="travel",
        servers=("travel",),
        turns=(
            Turn(
                asks="Where will it be warmer in the next five days, Tokyo or Berlin?",
                does='from statistics import mean\nhigh = {city: mean(one["high_c"] for one in get_forecast(city=city, days=5)) for city in ("Tokyo", "Berlin")}\nprint(max(high, key=high.get), high)',
                says="{0}; mean highs: {1}.",
            ),
        ),
    ),
    Task(
        name="drive to Stonebrook",
        domain="vehicles",
        servers=("vehicle", "messages"),
        turns=(
            Turn(
                asks="How far is it from Rivermist to Stonebrook, and do I have enough fuel?",
                does='km = estimate_distance(origin="Rivermist", destination="Stonebrook")["distance_km"]\nfuel = estimate_fuel_needed(distance_km=km)\nprint(km, fuel["needed_l"], fuel["enough"])',
                says="{0} km, which takes {1} litres. Enough in the tank: {2}.",
            ),
            Turn(
                asks="Fill in 20 litres all the same.",
                does='print(fill_fuel_tank(litres=20)["range_km"])',
                says="Done; the range is {0} km.",
            ),
            Turn(
                asks="Start the engine.",
                looks=("start_engine()",),
                does='lock_doors(locked=True)\nset_parking_brake(engaged=True)\nprint(start_engine()["engine"])',
                says="The doors had to be locked and the brake set first; the engine is {0}.",
            ),
            Turn(
                asks="Navigate to Stonebrook without tolls and hold 100 km/h on the motorway.",
                does='set_navigation(destination="Stonebrook", avoid_tolls=True)\nprint(set_cruise_control(speed_kmh=100)["speed_kmh"])',
                says="The route is set; cruise control is at {0} km/h.",
            ),
            Turn(
                asks="Text Carla that I am on my way.",
                does='carla = get_user_id(name="Carla")["user_id"]\nprint(send_message(receiver_id=carla, text="I am on my way.")["delivered"])',
                says="Carla knows ({0}).",
            ),
        ),
    ),
    Task(
        name="a tire is flat",
        domain="vehicles",
        servers=("vehicle", "support"),
        turns=(
            Turn(
                asks="Check the tires.",
                does='tires = check_tire_pressure()\nprint([name for name, fine in tires["healthy"].items() if not fine])',
                says="These need air: {0}.",
            ),
            Turn(
                asks="Where is the next shop?",
                does='shop = find_tire_shop()\nprint(shop["name"], shop["address"], shop["open_until"])',
                says="{0}, {1}; open until {2}.",
            ),
            Turn(
                asks="Open a ticket 'Tire pressure' with high priority.",
                does='print(create_ticket(title="Tire pressure", priority="high")["ticket_id"])',
                says="It is ticket {0}.",
            ),
        ),
    ),
    Task(
        name="a cold morning",
        domain="vehicles",
        servers=("vehicle",),
        turns=(
            Turn(
                asks="Set the climate to 23 degrees, defrost, and switch the headlights to auto.",
                does='set_headlights(mode="auto")\nprint(set_climate(temperature_c=23, mode="defrost")["temperature_c"])',
                says="Defrosting at {0} degrees, headlights on auto.",
            ),
            Turn(
                asks="How much fuel is there?",
                does='print(get_vehicle_status(section="fuel"))',
                says="14 litres, enough for about 215 km.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="announce the release",
        domain="messages",
        servers=("posts", "issues"),
        turns=(
            Turn(
                asks="How many bugs of acme/web are closed?",
                does='closed = list_issues(repository="acme/web", state="closed", labels=["bug"])["total_count"]\nprint(closed)',
                says="{0}.",
            ),
            Turn(
                asks="Post that the release is out and name that number, tagged #release.",
                does='post = create_post(text=f"The new release is out: {closed} bugs less.", tags=["#release"])\nprint(post["post_id"])',
                says="It is post {0}.",
            ),
            Turn(
                asks="Which of our earlier posts was liked most?",
                does='best = list_posts(username="riverlab", sort="likes")["posts"][0]\nprint(best["post_id"], best["likes"], best["text"])',
                says="Post {0} with {1} likes: {2}.",
            ),
            Turn(
                asks="Follow everybody who follows us.",
                does="for name in list_followers():\n    follow_user(username=name)\nprint(len(list_followers()))",
                says="We follow all {0} of them now.",
            ),
        ),
    ),
    Task(
        name="which tag works",
        domain="messages",
        servers=("posts",),
        turns=(
            Turn(
                asks="Which tag gets the most likes per post?",
                does='likes, page = {}, 1\nwhile True:\n    got = list_posts(page=page)\n    for one in got["posts"]:\n        for tag in one["tags"]:\n            likes.setdefault(tag, []).append(one["likes"])\n    page += 1\n    if not got["has_more"]:\n        break\nmean = {tag: round(sum(some) / len(some), 1) for tag, some in likes.items()}\nprint(max(mean, key=mean.get), mean)',
                says="{0}; likes per post: {1}.",
            ),
            Turn(
                asks="Reply 'Thank you!' to the latest post that has it.",
                does='latest = search_posts(keyword=max(mean, key=mean.get))["posts"][0]["post_id"]\nprint(latest, reply_to_post(post_id=latest, text="Thank you!")["replies"])',
                says="Replied to {0}, which has {1} replies now.",
            ),
        ),
    ),
    Task(
        name="sums for a garden",
        domain="math",
        servers=("maths",),
        turns=(
            Turn(
                asks="I measured 12.4, 13.1, 11.8, 12.9 and 14.0 litres. What are mean and standard deviation?",
                does="from statistics import mean, stdev\nlitres = [12.4, 13.1, 11.8, 12.9, 14.0]\nprint(round(mean(litres), 2), round(stdev(litres), 3))",
                says="The mean is {0}, the standard deviation {1} litres.",
            ),
            Turn(
                asks="What is the mean in gallons?",
                does="print(round(mean(litres) / 3.785411784, 3))",
                says="{0} gallons.",
            ),
            Turn(
                asks="If that grows by 4 percent a year, what is it after 6 years?",
                does="print(round(mean(litres) * 1.04 ** 6, 2))",
                says="{0} litres.",
            ),
        ),
    ),
    Task(
        name="a line through points",
        domain="math",
        servers=("maths", "trading"),
        turns=(
            Turn(
                asks="Fit a line through the last 30 closes of NEPT. What is its slope a day?",
                does='from statistics import linear_regression\ncloses = [one["close"] for one in get_price_history(symbol="NEPT", days=30)]\nline = linear_regression(range(30), closes)\nprint(round(line.slope, 3))',
                says="{0} dollars a day.",
            ),
            Turn(
                asks="Where would it be in 10 days, if it went on like that?",
                does="print(round(line.slope * 39 + line.intercept, 2))",
                says="At {0} dollars.",
            ),
        ),
    ),
)
