"""What fresh processes must show before a value of a clock or of the system fails a row."""

import itertools
import math

import pytest

from perfgate.measure.confirmation import settled
from perfgate.stages import Change


def rounds(*values, limit=1.25):
    """Return a round for each pair of base and head, worse where head is above `limit` x base."""
    words = ["worse" if head > limit * base else "same" for base, head in values]
    return [
        Change("track", base, head, word, "s")
        for (base, head), word in zip(values, words, strict=True)
    ]


def first_word(seen):
    """Return what the first rounds that settle it say, and how many they were."""
    return next((word, count) for count in range(len(seen) + 1) if (word := settled(seen[:count])))


def test_four_rounds_that_agree_confirm():
    assert first_word(rounds((7.2, 13.7), (7.0, 14.1), (7.9, 13.2), (7.1, 14.6))) == ("worse", 4)


@pytest.mark.parametrize(
    "burst", [(15.1, 14.0), (11.8, 14.0), (7.1, 8.0)], ids=["base", "base a little", "head"]
)
@pytest.mark.parametrize("place", range(4))
def test_a_burst_on_one_side_asks_for_three_more_rounds_and_hides_nothing(place, burst):
    seen = rounds(
        (7.2, 13.7), (7.0, 14.1), (7.9, 13.2), (7.1, 14.6), (7.3, 13.9), (7.4, 14.2), (7.2, 13.8)
    )
    seen[place : place + 1] = rounds(burst)
    assert first_word(seen) == ("worse", 7)


def test_two_rounds_that_are_not_worse_end_it():
    assert first_word(rounds((7.2, 7.1), (7.0, 7.3), (7.0, 14.0))) == ("same", 2)


def test_slow_minutes_that_both_sides_share_hide_nothing():
    assert first_word(rounds((5, 9), (10, 18), (5, 9), (11, 19), (5, 8), (6, 10), (12, 22))) == (
        "worse",
        7,
    )


def test_a_round_that_speaks_loudly_against_it_is_no_burst():
    assert first_word(rounds((5, 7), (5, 7), (5, 7), (20, 9), (5, 7), (5, 7), (5, 7))) == (
        "same",
        7,
    )


def test_less_and_nothing_at_all_can_be_worse_too():
    less = [Change("donated_buffers", base, 0.0, "worse") for base in (4.0, 4.0, 4.0, 4.0)]
    assert first_word(less) == ("worse", 4)
    none = [*less[:3], Change("donated_buffers", 0.0, 0.0, "same"), *less]
    assert first_word(none) == ("worse", 7)


def test_noise_alone_is_wholly_apart_as_rarely_as_said():
    places = set(range(8))
    told = 0
    for heads in itertools.combinations(places, 4):
        bases = places.difference(heads)
        seen = [
            Change("track", base, head, "worse")
            for base, head in zip(sorted(bases), heads, strict=True)
        ]
        told += settled(seen) == "worse" and sum(heads) > sum(bases)
    assert told / math.comb(8, 4) == 1 / 70


def test_noise_alone_weighs_as_little_as_said():
    told = 0
    for signs in itertools.product([1, -1], repeat=7):
        pairs = [
            (1.0, 1.0 + size) if sign > 0 else (1.0 + size, 1.0)
            for size, sign in enumerate(signs, 1)
        ]
        told += settled(rounds(*pairs)) == "worse"
    assert told / 2**7 == 3 / 128
