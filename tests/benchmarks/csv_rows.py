"""The rows of a CSV file as texts, whatever its columns."""

import csv


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
