"""Small things a shop needs. Made for the example: five of these functions are wrong."""

import re


def average(values):
    return sum(values) / len(values)


def add_item(item, basket=[]):
    basket.append(item)
    return basket


def last(items, count):
    return items[-count:]


def parse_price(text):
    return float(text.replace(",", "."))


def is_leap(year):
    return year % 4 == 0


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
