"""A car that takes orders."""

from __future__ import annotations

from typing import Literal

from bench.tokens.servers.records import Record, changes, reads

from pinfold.tools import BadCall

_DOORS = ("driver", "passenger", "rear_left", "rear_right")
_DISTANCES = {
    frozenset({"Rivermist", "Stonebrook"}): 212.0,
    frozenset({"Rivermist", "Oakendale"}): 98.5,
    frozenset({"Stonebrook", "Oakendale"}): 147.0,
    frozenset({"Rivermist", "San Marino"}): 420.0,
}
_TANK = 50.0
_PER_100_KM = 6.5


class Vehicle:
    def __init__(self) -> None:
        self._fuel = 14.0
        self._engine = "stopped"
        self._locked = dict.fromkeys(_DOORS, False)
        self._brake = "released"
        self._tires = {"front_left": 2.3, "front_right": 2.3, "rear_left": 1.8, "rear_right": 2.2}
        self._lights = "off"
        self._climate: Record = {"temperature_c": 21.0, "fan_speed": 2, "mode": "auto"}
        self._cruise: Record = {"active": False, "speed_kmh": 0}
        self._destination = ""

    @reads
    def get_vehicle_status(
        self, section: Literal["all", "fuel", "doors", "climate", "engine", "tires", "lights"] = "all"
    ) -> Record:
        """Display the status of the car: fuel in litres, engine, doors, climate, tire pressure in bar, lights, parking
        brake, cruise control and the destination of the navigation.

        Args:
            section: The part of the status that is wanted; all of it unless given.
        """
        whole: Record = {
            "fuel": {
                "level_l": round(self._fuel, 2),
                "tank_l": _TANK,
                "range_km": round(self._fuel / _PER_100_KM * 100),
            },
            "engine": {"state": self._engine, "parking_brake": self._brake},
            "doors": dict(self._locked),
            "climate": self._climate,
            "tires": self._tires,
            "lights": {"headlights": self._lights},
            "cruise": self._cruise,
            "navigation": {"destination": self._destination},
        }
        return whole if section == "all" else {section: whole[section]}

    @changes
    def start_engine(self, mode: Literal["start", "remote"] = "start") -> Record:
        """Start the engine. All doors must be locked and the parking brake must be engaged, else an error says what is
        missing.

        Args:
            mode: Whether somebody is in the car, or it is started from elsewhere.
        """
        if not all(self._locked.values()):
            raise BadCall("the engine cannot be started: not all doors are locked")
        if self._brake != "engaged":
            raise BadCall("the engine cannot be started: the parking brake is not engaged")
        self._engine = "running"
        return {"engine": "running", "mode": mode, "fuel_l": round(self._fuel, 2), "battery_v": 12.6}

    @changes
    def stop_engine(self) -> Record:
        """Stop the engine. The car must stand still."""
        self._engine = "stopped"
        return {"engine": "stopped"}

    @changes
    def lock_doors(
        self, locked: bool, doors: list[Literal["driver", "passenger", "rear_left", "rear_right"]] | None = None
    ) -> Record:
        """Lock or unlock doors of the car.

        Args:
            locked: True to lock, False to unlock.
            doors: Which doors; all of them unless given.
        """
        for door in doors or _DOORS:
            self._locked[door] = locked
        return {"doors": dict(self._locked), "still_open": [door for door, is_ in self._locked.items() if not is_]}

    @changes
    def set_parking_brake(self, engaged: bool) -> Record:
        """Engage or release the parking brake.

        Args:
            engaged: True to engage it, False to release it.
        """
        self._brake = "engaged" if engaged else "released"
        return {"parking_brake": self._brake}

    @changes
    def fill_fuel_tank(self, litres: float) -> Record:
        """Add fuel to the tank. The tank holds 50 litres; more than fits is refused.

        Args:
            litres: How much to add.
        """
        if self._fuel + litres > _TANK:
            raise BadCall(f"only {_TANK - self._fuel:g} litres fit into the tank")
        self._fuel += litres
        return {"level_l": round(self._fuel, 2), "range_km": round(self._fuel / _PER_100_KM * 100)}

    @reads
    def check_tire_pressure(self) -> Record:
        """Check the pressure of all tires, in bar, and whether each is within the healthy range of 2.1 to 2.6."""
        healthy = {name: 2.1 <= bar <= 2.6 for name, bar in self._tires.items()}
        return {"pressure_bar": self._tires, "healthy": healthy, "all_healthy": all(healthy.values())}

    @reads
    def find_tire_shop(self, city: str = "Rivermist") -> Record:
        """Find the nearest shop that repairs tires.

        Args:
            city: Where to look.
        """
        return {"name": f"{city} Tires", "address": f"12 Mill Road, {city}", "open_until": "18:30", "distance_km": 3.4}

    @reads
    def estimate_distance(self, origin: str, destination: str) -> Record:
        """Estimate the distance between two cities by road.

        Args:
            origin: Name of the city of departure.
            destination: Name of the city of arrival.
        """
        pair = frozenset({origin, destination})
        if pair not in _DISTANCES:
            raise BadCall(f"no road is known from {origin} to {destination}")
        return {"origin": origin, "destination": destination, "distance_km": _DISTANCES[pair]}

    @reads
    def estimate_fuel_needed(self, distance_km: float) -> Record:
        """Estimate how much fuel a distance takes, and whether what is in the tank is enough.

        Args:
            distance_km: The distance in kilometres.
        """
        needed = round(distance_km * _PER_100_KM / 100, 2)
        return {"needed_l": needed, "in_tank_l": round(self._fuel, 2), "enough": self._fuel >= needed}

    @changes
    def set_navigation(self, destination: str, avoid_tolls: bool = False) -> Record:
        """Set the destination of the navigation system.

        Args:
            destination: City or full address.
            avoid_tolls: Prefer roads without tolls.
        """
        self._destination = destination
        return {"destination": destination, "avoid_tolls": avoid_tolls, "status": "route found"}

    @changes
    def set_climate(
        self, temperature_c: float = 21.0, fan_speed: int = 2, mode: Literal["auto", "cool", "heat", "defrost"] = "auto"
    ) -> Record:
        """Adjust the climate control.

        Args:
            temperature_c: Desired temperature in degrees Celsius.
            fan_speed: Speed of the fan from 0 to 7.
            mode: How the air is treated.
        """
        self._climate = {"temperature_c": temperature_c, "fan_speed": fan_speed, "mode": mode}
        return self._climate

    @changes
    def set_headlights(self, mode: Literal["on", "off", "auto"]) -> Record:
        """Set the headlights.

        Args:
            mode: On, off, or by the light outside.
        """
        self._lights = mode
        return {"headlights": mode}

    @changes
    def set_cruise_control(self, speed_kmh: int, active: bool = True) -> Record:
        """Set the cruise control. The engine must be running.

        Args:
            speed_kmh: Speed to hold, from 30 to 180.
            active: False to switch it off.
        """
        if self._engine != "running":
            raise BadCall("cruise control needs a running engine")
        self._cruise = {"active": active, "speed_kmh": speed_kmh if active else 0}
        return self._cruise
