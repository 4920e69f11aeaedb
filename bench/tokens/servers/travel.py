"""Flights, hotels and what belongs to a trip."""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias

from bench.tokens.servers.records import Record, changes, find_one, reads

from pinfold.tools import BadCall

Cabin: TypeAlias = Literal["economy", "business", "first"]
_AIRPORTS = {
    "BER": "Berlin",
    "CDG": "Paris",
    "LHR": "London",
    "JFK": "New York",
    "SFO": "San Francisco",
    "NRT": "Tokyo",
    "RMS": "Ramstein",
}
_RATES = {"EUR": 1.0, "USD": 1.08, "GBP": 0.85, "JPY": 163.0}
_FACTOR = {"economy": 1.0, "business": 2.6, "first": 4.2}


class Travel:
    def __init__(self) -> None:
        self._bookings: list[Record] = [
            {
                "booking_id": "BK-301",
                "kind": "flight",
                "what": "LH-411",
                "date": "2026-03-20",
                "price": 412.0,
                "currency": "EUR",
                "status": "confirmed",
            },
            {
                "booking_id": "BK-302",
                "kind": "hotel",
                "what": "H-12",
                "date": "2026-03-20",
                "price": 388.0,
                "currency": "EUR",
                "status": "confirmed",
            },
        ]
        made = Random(15)
        self._hotels: list[Record] = [
            {
                "hotel_id": f"H-{number}",
                "name": f"{made.choice(('Park', 'Harbour', 'Central', 'Old Town'))} {made.choice(('Inn', 'Hotel', 'Suites'))}",
                "city": made.choice(tuple(_AIRPORTS.values())),
                "stars": made.randint(2, 5),
                "price_per_night": round(made.uniform(60, 380)),
                "breakfast": made.random() < 0.5,
                "distance_to_centre_km": round(made.uniform(0.2, 9), 1),
            }
            for number in range(1, 41)
        ]

    @reads
    def list_airports(self, city: str | None = None) -> list[Record]:
        """List the airports that flights can be booked from and to, with their IATA codes.

        Args:
            city: Only the airports of this city.
        """
        return [
            {"code": code, "city": name, "time_zone_offset": len(name)}
            for code, name in _AIRPORTS.items()
            if city is None or name.lower() == city.lower()
        ]

    @reads
    def search_flights(
        self,
        origin: str,
        destination: str,
        date: str,
        *,
        cabin: Cabin = "economy",
        max_stops: int | None = None,
        max_price: float | None = None,
    ) -> list[Record]:
        """Search for flights between two airports on a day. Prices are for one traveller in euro, all taxes included,
        and hold for 20 minutes.

        Args:
            origin: IATA code of the airport of departure.
            destination: IATA code of the airport of arrival.
            date: Day of departure, such as 2026-04-01.
            cabin: Class of travel.
            max_stops: Only flights with no more stops than this; 0 for direct flights.
            max_price: Only flights that cost no more than this, in euro.
        """
        for code in (origin, destination):
            if code not in _AIRPORTS:
                raise BadCall(f"there is no airport {code!r}; known are {', '.join(_AIRPORTS)}")
        made = Random(f"{origin}{destination}{date}")
        found: list[Record] = []
        for place in range(6):
            stops = made.choice((0, 0, 1, 2))
            price = round(made.uniform(90, 700) * _FACTOR[cabin], 2)
            departs = made.randint(5, 21)
            found.append(
                {
                    "flight_id": f"{made.choice(('LH', 'AF', 'BA'))}-{made.randint(100, 999)}{place}",
                    "origin": origin,
                    "destination": destination,
                    "date": date,
                    "departs": f"{departs:02d}:{made.choice(('05', '25', '50'))}",
                    "duration_minutes": made.randint(70, 780),
                    "stops": stops,
                    "cabin": cabin,
                    "price": price,
                    "seats_left": made.randint(1, 9),
                }
            )
        return [
            one
            for one in found
            if (max_stops is None or one["stops"] <= max_stops) and (max_price is None or one["price"] <= max_price)
        ]

    @changes
    def book_flight(self, flight_id: str, date: str, price: float, traveller: str, card: str = "default") -> Record:
        """Book a flight for one traveller at the price that was found. The card is charged at once.

        Args:
            flight_id: The id of the flight, as search_flights gives it.
            date: Day of departure.
            price: The price that was found.
            traveller: Full name as in the passport.
            card: Which of your cards to charge.
        """
        return {**self._book("flight", flight_id, date, price), "traveller": traveller, "card": card}

    @reads
    def search_hotels(
        self, city: str, max_price_per_night: float | None = None, min_stars: int = 1, breakfast: bool = False
    ) -> list[Record]:
        """Search for hotels in a city. Prices are for one room and one night, in euro.

        Args:
            city: Name of the city.
            max_price_per_night: Only hotels that cost no more than this.
            min_stars: Only hotels with at least so many stars, from 1 to 5.
            breakfast: Only hotels where breakfast is included.
        """
        return [
            one
            for one in self._hotels
            if one["city"].lower() == city.lower()
            and one["stars"] >= min_stars
            and (max_price_per_night is None or one["price_per_night"] <= max_price_per_night)
            and (one["breakfast"] or not breakfast)
        ]

    @changes
    def book_hotel(self, hotel_id: str, check_in: str, nights: int = 1, rooms: int = 1) -> Record:
        """Book rooms in a hotel. They can be cancelled free of charge until the day before.

        Args:
            hotel_id: The id of the hotel, as search_hotels gives it.
            check_in: Day of arrival, such as 2026-04-01.
            nights: Number of nights.
            rooms: Number of rooms.
        """
        hotel = find_one(self._hotels, "hotel_id", hotel_id, "hotel")
        return self._book("hotel", hotel_id, check_in, hotel["price_per_night"] * nights * rooms)

    @reads
    def list_bookings(self, kind: Literal["flight", "hotel", "insurance", "all"] = "all") -> list[Record]:
        """List your bookings with their states and prices.

        Args:
            kind: Only bookings of this kind.
        """
        return [one for one in self._bookings if kind in ("all", one["kind"])]

    @reads
    def get_booking(self, booking_id: str) -> Record:
        """Get the details of one booking.

        Args:
            booking_id: The id of the booking, such as BK-123.
        """
        return find_one(self._bookings, "booking_id", booking_id, "booking")

    @changes
    def cancel_booking(self, booking_id: str, reason: str = "") -> Record:
        """Cancel a booking. Flights are refunded at 70 percent, everything else in whole.

        Args:
            booking_id: The id of the booking.
            reason: Why, for the airline or the hotel.
        """
        booking = self.get_booking(booking_id)
        if booking["status"] == "cancelled":
            raise BadCall(f"{booking_id} is cancelled already")
        booking["status"] = "cancelled"
        share = 0.7 if booking["kind"] == "flight" else 1
        return {
            "booking_id": booking_id,
            "status": "cancelled",
            "refund": round(booking["price"] * share, 2),
            "reason": reason,
        }

    @changes
    def purchase_insurance(self, booking_id: str, cover: Literal["basic", "full"] = "basic") -> Record:
        """Buy travel insurance for a booking. It costs 4 percent of the price of the booking, or 9 percent for full
        cover.

        Args:
            booking_id: The booking to insure.
            cover: How much is covered.
        """
        booking = self.get_booking(booking_id)
        price = round(booking["price"] * (0.04 if cover == "basic" else 0.09), 2)
        return self._book("insurance", booking_id, booking["date"], price)

    @reads
    def convert_currency(self, amount: float, from_currency: str, to_currency: str) -> Record:
        """Convert an amount of money at today's rate.

        Args:
            amount: How much.
            from_currency: Three-letter code of the currency it is in.
            to_currency: Three-letter code of the currency wanted.
        """
        for code in (from_currency, to_currency):
            if code not in _RATES:
                raise BadCall(f"there is no rate for {code!r}; known are {', '.join(_RATES)}")
        rate = _RATES[to_currency] / _RATES[from_currency]
        return {"amount": round(amount * rate, 2), "currency": to_currency, "rate": round(rate, 4)}

    @reads
    def get_forecast(self, city: str, days: int = 3) -> list[Record]:
        """Get the weather forecast for a city, one entry for each of the next days, at most seven.

        Args:
            city: Name of the city.
            days: For how many days.
        """
        made = Random(city.lower())
        return [
            {
                "date": f"2026-03-{3 + day:02d}",
                "high_c": made.randint(4, 24),
                "low_c": made.randint(-2, 10),
                "rain_probability": made.randint(0, 100),
                "wind_kmh": made.randint(3, 45),
            }
            for day in range(min(days, 7))
        ]

    def _book(self, kind: str, what: str, date: str, price: float) -> Record:
        booking: Record = {
            "booking_id": f"BK-{301 + len(self._bookings)}",
            "kind": kind,
            "what": what,
            "date": date,
            "price": price,
            "currency": "EUR",
            "status": "confirmed",
        }
        self._bookings.append(booking)
        return booking
