"""How often the verdicts of ``reproduce`` are wrong, in simulated tables.

    python -m benchmarks.verdicts [--tables 2000] [--seed 0]

The tables are those of the package's items, with their published values and statements; only what
our runs gave is drawn at random, so that the truth is known:

- The share of tables in which any verdict is wrong, at most 5 % whatever the truth is: no row
  differs, every row differs by exactly the margin, some of both; spreads and numbers of seeds that
  are unequal; eight columns.
- The share of values that agree when the table is replicated exactly, the published run being one
  more draw.
- How many comparisons are decided with as many seeds as a pilot of three said would do.
- Where seeds are added as needed and every table is looked at after each: the share of tables with
  any wrong verdict, and how many seeds a difference takes, against one look at a fixed number.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from contrasent.reproduce import deciding
from contrasent.reproduce.entries import Forms
from contrasent.reproduce.items import BETTER, EQUAL, MARGIN, NO_WORSE, Item
from contrasent.reproduce.reading import ItemFolder
from contrasent.reproduce.sequential import Looks, evidence, p_values
from contrasent.reproduce.spread import Arm, with_noise
from contrasent.reproduce.verdict import (
    AGREES,
    ALPHA,
    DIFFERS,
    EQUIVALENT,
    OPEN,
    VALUE,
    Comparison,
)

Draw = Callable[[int], float]
"""What a row differs by from 70 points, or its standard deviation, or its seeds; by its place."""

HAIR = 1e-9


def alike(value: float) -> Draw:
    """The same for every row."""
    return lambda place: value


def in_turn(*values: float) -> Draw:
    """One after the other, again and again."""
    return lambda place: values[place % len(values)]


def forms(item: Item) -> dict[str, Forms]:
    """How numbers are written, which does not matter here."""
    return {column: {"paper": ".1f", "ours": ".2f"} for column in item.columns}


@dataclass(frozen=True)
class World:
    """How rows vary.

    Attributes:
        means: what each differs by from 70 points.
        deviations: how far a seed moves each by itself.
        seeds: of each.
        together: how far a seed moves all rows of one order alike, at most.
        orders: of each; negative for one that is not known.
    """

    means: Draw
    deviations: Draw
    seeds: Draw
    together: float = 0.0
    orders: Draw = lambda place: -1.0


def simulated(item: Item, random: np.random.Generator, world: World) -> dict[str, dict[str, Arm]]:
    """What rows that are trained gave, in columns that are half alike."""
    arms: dict[str, dict[str, Arm]] = {column: {} for column in item.columns}
    trained = [row for row in item.rows if row.kind == "train"]
    most = max(int(world.seeds(place)) for place in range(len(trained)))
    common = random.normal(size=(len(arms), len(trained), most)) if world.together else None
    for place, row in enumerate(trained):
        count, order = int(world.seeds(place)), int(world.orders(place))
        shared = random.normal(size=count)
        for column, own in enumerate(arms.values()):
            noise = np.sqrt(0.5) * (shared + random.normal(size=count))
            if len(arms) == 1:
                noise = shared
            values = 70 + world.means(place) + world.deviations(place) * noise
            if common is not None and order >= 0:
                values += world.together * common[column, order, :count]
            known = order if order >= 0 else None
            own[row.name] = Arm(tuple(map(float, values)), seeded=True, order=known)
    return {column: with_noise(own) for column, own in arms.items()}


def wrong(one: Comparison, word: str, truth: float) -> bool:
    """Whether a verdict contradicts the true difference, on the margin itself included."""
    margin, way = one.margin or 0.0, truth * one.sign
    if word == OPEN:
        return False
    if word == EQUIVALENT or (one.kind == EQUAL and word == AGREES):
        return abs(truth) >= margin - HAIR
    if one.kind in (EQUAL, VALUE):
        return word == DIFFERS and abs(truth) <= margin + HAIR
    if one.kind != BETTER:
        way = way + margin if one.kind == NO_WORSE else margin - way
    return way <= HAIR if word == AGREES else way >= -HAIR


def verdicts(item: Item, scale: str, arms: deciding.Arms) -> Iterator[tuple[Comparison, str]]:
    """Every comparison of a table, with the word on it."""
    decided = deciding.decide(item, scale, arms, forms(item), {})
    for place, found in decided.cells.items():
        yield decided.compared[place][0], found.word
    for claim in item.claims:
        pairs = zip(decided.compared[claim.name], decided.claims[claim.name], strict=True)
        for one, (_, said) in pairs:
            if one.gap is not None:
                yield one, said.word


def family_wise(item: Item, tables: int, seed: int, world: World) -> tuple[float, float]:
    """The share of tables with any wrong verdict, and of comparisons that are decided."""
    means = world.means
    places = {r.name: i for i, r in enumerate(r for r in item.rows if r.kind == "train")}
    random, bad, said, asked = np.random.default_rng(seed), 0, 0, 0
    for _ in range(tables):
        arms = simulated(item, random, world)
        found = [
            (one, word, means(places[one.after]) - means(places[one.before]))
            for one, word in verdicts(item, "lab", arms)
            if one.gap is not None and one.before
        ]
        bad += any(wrong(*each) for each in found)
        said += sum(word != OPEN for _, word, _ in found)
        asked += len(found)
    return bad / tables, said / asked


def replications(
    item: Item, tables: int, seed: int, deviation: float, seeds: int
) -> tuple[float, float]:
    """Exact replications: the share of values that agree, and of tables where one differs."""
    random, agree, asked, bad = np.random.default_rng(seed), 0, 0, 0
    for _ in range(tables):
        rows = tuple(
            replace(
                row,
                expected={
                    column: replace(cell, value=70 + deviation * float(random.normal()))
                    for column, cell in row.expected.items()
                },
            )
            for row in item.rows
        )
        again = replace(item, rows=rows, claims=())
        world = World(alike(0.0), alike(deviation), alike(seeds))
        arms = simulated(again, random, world)
        words = [word for _, word in verdicts(again, "paper", arms)]
        agree += words.count(AGREES)
        asked += len(words)
        bad += DIFFERS in words
    return agree / asked, bad / tables


def promised(item: Item, tables: int, seed: int, deviation: float) -> Iterator[str]:
    """What a pilot of three seeds promises, and what comes of it."""
    random = np.random.default_rng(seed)
    (column,) = item.columns
    away = (0.0, MARGIN / 4, MARGIN / 2, 3 * MARGIN / 4, MARGIN, 2 * MARGIN)
    decided = dict.fromkeys(away, 0)
    needed: list[int] = []
    for _ in range(tables):
        pilot = simulated(item, random, World(alike(0.0), alike(deviation), alike(3)))
        shown = deciding.decide(item, "lab", pilot, forms(item), {}).columns[column]
        needed.append(shown["needed"] or 0)
        # The reference is the first row, the others lie around it.
        around = World(
            lambda i: away[(i - 1) % len(away)] if i else 0.0,
            alike(deviation),
            alike(needed[-1]),
        )
        more = simulated(item, random, around)
        cells = deciding.decide(item, "lab", more, forms(item), {}).cells
        trained = [r.name for r in item.rows if r.kind == "train"]
        for value in away:
            place = trained[1 + away.index(value)]
            decided[value] += cells[place, column].word != OPEN
    middle = int(np.median(needed))
    for value, count in decided.items():
        yield (
            f"{count / tables:7.1%} decided with the seeds that were promised ({middle} at the "
            f"median), true difference {value:g}"
        )


ROWS, LOOKS = 10, 15
"""Rows that are compared with a reference row, and the most seeds of each."""


def growing(tables: int, seed: int, truth: float, deviations: Draw) -> Looks:
    """Differences from the reference row, after each seed; rows share part of a seed's noise."""
    random = np.random.default_rng(seed)
    own = np.array([deviations(place) for place in range(ROWS + 1)])[:, None]
    draws = random.normal(size=(tables, ROWS + 1, LOOKS))
    draws = own * draws + 0.2 * random.normal(size=(tables, 1, LOOKS))
    return Looks.of(truth + draws[:, 1:] - draws[:, :1])


def looked_at(tables: int, seed: int, truth: float, deviations: Draw) -> float:
    """The share of tables with any wrong verdict at any time, true differences being the same."""
    found = growing(tables, seed, truth, deviations)
    wrong = p_values(evidence(found, 0.0))
    if truth:
        ends = ((-truth, 1), (truth, -1))
        wrong = np.max([p_values(evidence(found, *end)) for end in ends], axis=0)
    return float((wrong <= ALPHA / ROWS).any(axis=1).mean())


def taken(tables: int, seed: int, effect: float) -> tuple[float, int]:
    """Mean seeds until a difference is found; those of one look that finds it in 80 %."""
    from scipy.special import nctdtr, stdtrit

    level, random = ALPHA / ROWS, np.random.default_rng(seed)
    found = Looks.of(random.normal(effect, 1.0, (tables, 60)))
    sure = evidence(found, 0.0) >= -np.log(level)
    counts = np.where(sure.any(axis=1), 2 + sure.argmax(axis=1), 60)

    def power(n: int) -> float:
        return 1 - float(nctdtr(n - 1, effect * np.sqrt(n), stdtrit(n - 1, 1 - level / 2)))

    return float(counts.mean()), next(n for n in range(2, 200) if power(n) >= 0.8)


def unpaired(one: Item, wide: Item, swept: Item) -> Iterator[tuple[str, Item, World]]:
    """Tables whose rows share nothing but their columns."""
    none, both = alike(0.0), in_turn(0.0, MARGIN, -MARGIN, 0.0, MARGIN)
    usual, three = alike(0.3), alike(3)
    yield "no row differs", one, World(none, usual, three)
    yield "no row differs, no worse among the statements", swept, World(none, usual, three)
    margin = World(lambda i: MARGIN * (i > 0), alike(0.05), three)
    yield "all differ by the margin", swept, margin
    yield "some of both", one, World(both, alike(0.1), three)
    yield "some differ by 2", one, World(in_turn(0.0, 2.0, -2.0), usual, three)
    yield "one row varies 4 times as much", one, World(none, widest(3, 0.3), three)
    yield "spreads of 0.15, 0.3 and 0.6", one, World(none, in_turn(0.15, 0.3, 0.6), three)
    yield "1 to 5 seeds", one, World(none, usual, in_turn(3, 2, 5, 1, 4))
    yield "eight columns", wide, World(none, usual, three)
    yield "eight columns, 5 seeds, some of both", wide, World(both, alike(0.1), alike(5))


def paired() -> Iterator[tuple[str, World]]:
    """Tables whose rows share the order of their sentences, which moves them by 0.6 points."""
    none, both = alike(0.0), in_turn(0.0, MARGIN, -MARGIN, 0.0, MARGIN)
    order, orders = alike(0.0), in_turn(0.0, 0.0, 1.0)
    for count in (3, 8):
        title, seeds = f"one order, {count} seeds", alike(count)
        yield title, World(none, alike(0.1), seeds, 0.6, order)
        yield f"{title}, some of both", World(both, alike(0.1), seeds, 0.6, order)
        yield f"{title}, one row varies 4 times as much", World(none, widest(3), seeds, 0.6, order)
        yield f"{title}, the reference does", World(none, widest(0), seeds, 0.6, order)
        uneven = in_turn(0.05, 0.1, 0.2)
        yield f"{title}, spreads of 0.05, 0.1 and 0.2", World(none, uneven, seeds, 0.6, order)
        yield f"two orders, {count} seeds", World(none, alike(0.1), seeds, 0.6, orders)
        yield f"{title}, but nothing in common", World(none, alike(0.1), seeds, 0.0, order)


def widest(row: int, deviation: float = 0.1) -> Draw:
    """One row varies four times as much as the others."""
    return lambda place: deviation * (4 if place == row else 1)


def main() -> int:
    """Simulate and print; 1 if a rate is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    one, wide = ItemFolder().find(["simcse:table1", "simcse_plus_plus:table1"])
    (swept,) = ItemFolder().find(["simcse:table3"])
    usual = alike(0.3)
    tables = [*unpaired(one, wide, swept), *((title, one, world) for title, world in paired())]
    slack = 2 * float(np.sqrt(0.05 * 0.95 / options.tables))
    faults = 0
    print(f"{options.tables} tables each. Tables with any wrong verdict, at most 5 %:")
    for title, item, world in tables:
        share, said = family_wise(item, options.tables, options.seed, world)
        faults += share > 0.05 + slack
        print(f"{share:7.1%}  {title} ({item.name}; {said:.0%} decided)", flush=True)
    print("Exact replications, values that agree, about 95 %; tables where any differs:")
    for deviation in (0.3, 0.5, 1.0):
        for seeds in (3, 5):
            agree, bad = replications(one, options.tables, options.seed, deviation, seeds)
            faults += not 0.93 <= agree <= 0.97 or bad > 0.05 + slack
            print(f"{agree:7.1%} {bad:7.1%}  spread {deviation}, {seeds} seeds", flush=True)
    print("Seeds that would decide, at least 80 %:")
    for line in promised(one, options.tables // 4, options.seed, 0.3):
        faults += float(line.split("%")[0]) < 78
        print(line, flush=True)
    print("Seeds added as needed, up to 15, a look after each; tables with any wrong verdict:")
    uneven = in_turn(0.6, 0.15, 0.3, 1.2, 0.3)
    for title, truth, deviations in (
        ("no row differs", 0.0, usual),
        ("no row differs, spreads of 0.15 to 1.2", 0.0, uneven),
        ("all differ by the margin", MARGIN, usual),
        ("all differ by the margin, spreads of 0.15 to 1.2", MARGIN, uneven),
    ):
        share = looked_at(options.tables, options.seed, truth, deviations)
        faults += share > 0.05
        print(f"{share:7.1%}  {title}", flush=True)
    print("Mean seeds that find a difference among ten; and of one look, four times in five:")
    for effect in (1.0, 1.5, 2.0, 3.0, 5.0):
        mean, fixed = taken(options.tables, options.seed, effect)
        print(f"{mean:7.1f} {fixed:5}  {effect} standard deviations of it", flush=True)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
