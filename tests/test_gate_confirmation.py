"""What fresh processes must show before a value of a clock or of the system fails a row."""

import itertools
import math

import pytest

from ci.confirmation import settled
from ci.rows import Change


def rounds(*values, limit=1.25):
    """Return a round for each pair of base and head, worse where head is beyond `limit` times base."""
    words = ["worse" if head > limit * base else "same" for base, head in values]
    return [Change("track", base, head, word, "s") for (base, head), word in zip(values, words, strict=True)]


def first_word(seen):
    """Return what the first rounds that settle it say, and how many they were."""
    return next((word, count) for count in range(len(seen) + 1) if (word := settled(seen[:count])))


def test_four_rounds_that_agree_confirm():
    assert first_word(rounds((7.2, 13.7), (7.0, 14.1), (7.9, 13.2), (7.1, 14.6))) == ("worse", 4)


@pytest.mark.parametrize("burst", [(15.1, 14.0), (11.8, 14.0), (7.1, 8.0)], ids=["base", "base a little", "head"])
@pytest.mark.parametrize("place", range(4))
def test_a_burst_on_one_side_asks_for_three_more_rounds_and_hides_nothing(place, burst):
    seen = rounds((7.2, 13.7), (7.0, 14.1), (7.9, 13.2), (7.1, 14.6), (7.3, 13.9), (7.4, 14.2), (7.2, 13.8))
    seen[place : place + 1] = rounds(burst)
    assert first_word(seen) == ("worse", 7)


def test_two_rounds_that_are_not_worse_end_it():
    assert first_word(rounds((7.2, 7.1), (7.0, 7.3), (7.0, 14.0))) == ("same", 2)


def test_rounds_that_each_say_worse_but_overlap_confirm_nothing():
    assert first_word(rounds((1, 2), (3, 5), (6, 9), (10, 14), (15, 21), (22, 30), (31, 42))) == ("same", 7)


@pytest.mark.parametrize(("count", "chance"), [(4, 1 / 70), (7, 45 / 3432)])
def test_noise_alone_confirms_as_rarely_as_said(count, chance):
    places = range(2 * count)
    heads = [set(chosen) for chosen in itertools.combinations(places, count)]
    told = 0
    for chosen in heads:
        bases = [place for place in places if place not in chosen]
        seen = [Change("track", base, head, "worse", "s") for base, head in zip(bases, sorted(chosen), strict=True)]
        told += settled(seen) == "worse" and sum(chosen) > sum(bases)
    assert told == round(chance * math.comb(2 * count, count))
