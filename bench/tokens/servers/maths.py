"""Sums that agents without code are given tools for."""

from __future__ import annotations

import math
import statistics
from typing import Literal

from bench.tokens.servers.records import Record, reads

from pinfold.tools import BadCall

_METRES = {"m": 1.0, "km": 1000.0, "mile": 1609.344, "foot": 0.3048}
_LITRES = {"litre": 1.0, "gallon": 3.785411784, "pint": 0.473176473}
_KILOGRAMS = {"kg": 1.0, "pound": 0.45359237, "ounce": 0.028349523125}


class Maths:
    @reads
    def mean(self, numbers: list[float]) -> Record:
        """Calculate the arithmetic mean of a list of numbers.

        Args:
            numbers: The numbers; at least one.
        """
        return {"result": statistics.fmean(self._check_numbers(numbers))}

    @reads
    def median(self, numbers: list[float]) -> Record:
        """Calculate the median of a list of numbers.

        Args:
            numbers: The numbers; at least one.
        """
        return {"result": statistics.median(self._check_numbers(numbers))}

    @reads
    def standard_deviation(self, numbers: list[float], sample: bool = True) -> Record:
        """Calculate the standard deviation of a list of numbers.

        Args:
            numbers: The numbers; at least two.
            sample: Whether they are a sample (divide by n - 1) or the whole population.
        """
        if len(numbers) < 2:
            raise BadCall("at least two numbers are needed")
        return {"result": statistics.stdev(numbers) if sample else statistics.pstdev(numbers)}

    @reads
    def percentile(self, numbers: list[float], percent: float) -> Record:
        """Calculate a percentile of a list of numbers, with linear interpolation between neighbours.

        Args:
            numbers: The numbers; at least one.
            percent: Which percentile, from 0 to 100.
        """
        ordered = sorted(self._check_numbers(numbers))
        place = (len(ordered) - 1) * percent / 100
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        return {"result": ordered[low] + (ordered[high] - ordered[low]) * (place - low)}

    @reads
    def linear_regression(self, x: list[float], y: list[float]) -> Record:
        """Fit a straight line through points by least squares and get its slope, intercept and correlation.

        Args:
            x: The first coordinates.
            y: The second coordinates, as many as the first.
        """
        line = statistics.linear_regression(x, y)
        return {"slope": line.slope, "intercept": line.intercept, "correlation": statistics.correlation(x, y)}

    @reads
    def round_number(self, number: float, decimal_places: int = 0) -> Record:
        """Round a number to a number of decimal places.

        Args:
            number: The number to round.
            decimal_places: How many decimal places to keep.
        """
        return {"result": round(number, decimal_places)}

    @reads
    def logarithm(self, value: float, base: float = math.e) -> Record:
        """Compute the logarithm of a number.

        Args:
            value: The number; it must be positive.
            base: The base; natural unless given.
        """
        if value <= 0:
            raise BadCall("the value must be positive")
        return {"result": math.log(value, base)}

    @reads
    def power(self, base: float, exponent: float) -> Record:
        """Raise a number to a power.

        Args:
            base: The number.
            exponent: The power.
        """
        return {"result": base**exponent}

    @reads
    def convert_units(
        self,
        value: float,
        from_unit: Literal["m", "km", "mile", "foot", "litre", "gallon", "pint", "kg", "pound", "ounce"],
        to_unit: Literal["m", "km", "mile", "foot", "litre", "gallon", "pint", "kg", "pound", "ounce"],
    ) -> Record:
        """Convert a value from one unit of length, volume or mass to another of the same kind.

        Args:
            value: The value in the first unit.
            from_unit: The unit it is in.
            to_unit: The unit wanted.
        """
        for table in (_METRES, _LITRES, _KILOGRAMS):
            if from_unit in table and to_unit in table:
                return {"result": value * table[from_unit] / table[to_unit], "unit": to_unit}
        raise BadCall(f"{from_unit} and {to_unit} measure different things")

    @reads
    def solve_quadratic(self, a: float, b: float, c: float) -> Record:
        """Solve a quadratic equation a x^2 + b x + c = 0 in real numbers.

        Args:
            a: Coefficient of the square; not zero.
            b: Coefficient of the linear term.
            c: The constant.
        """
        inner = b * b - 4 * a * c
        if a == 0:
            raise BadCall("a must not be zero")
        roots = sorted((-b + sign * math.sqrt(inner)) / (2 * a) for sign in (1, -1)) if inner >= 0 else []
        return {"roots": roots}

    @reads
    def compound_interest(self, principal: float, annual_rate: float, years: float, times_per_year: int = 1) -> Record:
        """Calculate what an amount of money grows to with compound interest.

        Args:
            principal: The amount at the beginning.
            annual_rate: The interest of a year, as a fraction such as 0.05.
            years: For how long.
            times_per_year: How often interest is added.
        """
        grown = principal * (1 + annual_rate / times_per_year) ** (times_per_year * years)
        return {"amount": round(grown, 2), "interest": round(grown - principal, 2)}

    def _check_numbers(self, numbers: list[float]) -> list[float]:
        if not numbers:
            raise BadCall("at least one number is needed")
        return numbers
