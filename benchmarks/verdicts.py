"""How often the verdicts of ``reproduce`` are wrong, in simulated tables.

    python -m benchmarks.verdicts [--tables 2000] [--seed 0]

The tables are those of the package's items, with their published values and statements; only what
our runs gave is drawn at random, so that the truth is known:

- The share of tables in which any statement, or any cell, has a wrong verdict: at most 5 % whatever
  the truth is (no row differs, every row differs by exactly the margin, some of both; spreads and
  numbers of seeds that are unequal; eight columns; one order of sentences that moves all rows).
- The share of values that agree when the table is replicated exactly, the published run being one
  more draw.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from contrasent.reproduce.table_verdicts import (
    ABSENT,
    AGREES,
    DIFFERS,
    EQUIVALENT,
    OPEN,
    RowComparison,
    SeedScores,
    Verdict,
    decide,
)
from contrasent.reproduce.tables import BETTER, EQUAL, MARGIN, Item, ItemFolder

Draw = Callable[[int], float]
"""What a row differs by from 70 points, or its standard deviation, or its seeds; by its place."""

HAIR = 1e-9


def alike(value: float) -> Draw:
    """The same for every row."""
    return lambda place: value


def in_turn(*values: float) -> Draw:
    """One after the other, again and again."""
    return lambda place: values[place % len(values)]


def widest(row: int, deviation: float = 0.1) -> Draw:
    """One row varies four times as much as the others."""
    return lambda place: deviation * (4 if place == row else 1)


@dataclass(frozen=True)
class World:
    """How rows vary.

    Attributes:
        means: what each differs by from 70 points.
        deviations: how far a seed moves each by itself.
        seeds: of each.
        together: how far a seed moves all rows of one order alike.
        orders: of each; negative for one that is not known.
    """

    means: Draw
    deviations: Draw
    seeds: Draw
    together: float = 0.0
    orders: Draw = lambda place: -1.0


def simulated(
    item: Item, random: np.random.Generator, world: World
) -> dict[str, dict[str, SeedScores]]:
    """What rows that are trained gave, in columns that are half alike."""
    scores: dict[str, dict[str, SeedScores]] = {column: {} for column in item.columns}
    trained = [row for row in item.rows if row.kind == "train"]
    most = max(int(world.seeds(place)) for place in range(len(trained)))
    common = random.normal(size=(len(scores), len(trained), most))
    for place, row in enumerate(trained):
        count, order = int(world.seeds(place)), int(world.orders(place))
        shared = random.normal(size=count)
        for column, own in enumerate(scores.values()):
            noise = np.sqrt(0.5) * (shared + random.normal(size=count))
            if len(scores) == 1:
                noise = shared
            values = 70 + world.means(place) + world.deviations(place) * noise
            if order >= 0:
                values += world.together * common[column, order, :count]
            known = order if order >= 0 else None
            own[row.name] = SeedScores(tuple(map(float, values)), order=known)
    return scores


def truth(one: RowComparison, apart: float) -> set[str]:
    """The words that a true difference allows; on the edge of the margin none but its own."""
    margin, way = one.margin or 0.0, apart * one.favor
    if one.kind == EQUAL:
        inside, outside = abs(apart) < margin - HAIR, abs(apart) > margin + HAIR
        return {word for word, holds in ((AGREES, inside), (DIFFERS, outside)) if holds}
    edge = 0.0 if one.kind == BETTER else -margin
    allowed = {AGREES} if way > edge + HAIR else {DIFFERS} if way < edge - HAIR else set()
    if one.kind == BETTER and abs(apart) < margin - HAIR:
        allowed.add(EQUIVALENT)
    return allowed


def is_wrong(verdict: Verdict, means: dict[str, float]) -> bool:
    """Whether a verdict contradicts the true differences of its parts."""
    if verdict.word in (OPEN, ABSENT):
        return False
    known = [
        truth(one, means[one.after] - means[one.before])
        for one in verdict.parts
        if one.effect is not None
    ]
    if verdict.word == DIFFERS:
        return not any(DIFFERS in words for words in known)
    allowed = {AGREES, EQUIVALENT} if verdict.word == EQUIVALENT else {AGREES}
    return not all(words & allowed for words in known)


def wrong_tables(item: Item, tables: int, seed: int, world: World) -> tuple[float, float, float]:
    """Shares of tables with a wrong statement and with a wrong cell; of statements decided."""
    trained = [row.name for row in item.rows if row.kind == "train"]
    means = {name: world.means(place) for place, name in enumerate(trained)}
    random, statements, cells, decided, asked = np.random.default_rng(seed), 0, 0, 0, 0
    for _ in range(tables):
        found = decide(item, "lab", simulated(item, random, world))
        own = [v for v in found.claims.values() if v.p is not None and all(_is_known(v, means))]
        statements += any(is_wrong(verdict, means) for verdict in own)
        cells += any(is_wrong(verdict, means) for verdict in found.cells.values())
        decided += sum(verdict.word != OPEN for verdict in own)
        asked += len(own)
    return statements / tables, cells / tables, decided / max(1, asked)


def _is_known(verdict: Verdict, means: dict[str, float]) -> Iterator[bool]:
    for one in verdict.parts:
        yield {one.before, one.after} <= set(means)


def replications(
    item: Item, tables: int, seed: int, deviation: float, seeds: int
) -> tuple[float, float]:
    """Exact replications: the share of values that agree, and of tables where one differs."""
    random, agree, asked, bad = np.random.default_rng(seed), 0, 0, 0
    world = World(alike(0.0), alike(deviation), alike(seeds))
    for _ in range(tables):
        rows = []
        for row in item.rows:
            drawn = {
                column: cell.model_copy(update={"value": 70 + deviation * float(random.normal())})
                for column, cell in row.expected.items()
            }
            rows.append(row.model_copy(update={"expected": drawn}))
        again = item.model_copy(update={"rows": tuple(rows), "claims": ()})
        cells = decide(again, "paper", simulated(again, random, world)).cells.values()
        words = [verdict.word for verdict in cells if verdict.word != ABSENT]
        agree += words.count(AGREES)
        asked += len(words)
        bad += DIFFERS in words
    return agree / asked, bad / tables


def worlds(one: Item, wide: Item, swept: Item) -> Iterator[tuple[str, Item, World]]:
    """Tables whose rows share nothing but their columns, then ones that share an order."""
    none, both = alike(0.0), in_turn(0.0, MARGIN, -MARGIN, 0.0, MARGIN)
    usual, three, order = alike(0.3), alike(3), alike(0.0)
    margin = World(lambda i: MARGIN * (i > 0), alike(0.05), three)
    yield "no row differs", one, World(none, usual, three)
    yield "no row differs, no worse among the statements", swept, World(none, usual, three)
    yield "all differ by the margin", swept, margin
    yield "some of both", one, World(both, alike(0.1), three)
    yield "some differ by 2", one, World(in_turn(0.0, 2.0, -2.0), usual, three)
    yield "one row varies 4 times as much", one, World(none, widest(3, 0.3), three)
    yield "spreads of 0.15, 0.3 and 0.6", one, World(none, in_turn(0.15, 0.3, 0.6), three)
    yield "1 to 5 seeds", one, World(none, usual, in_turn(3, 2, 5, 1, 4))
    yield "eight columns", wide, World(none, usual, three)
    yield "eight columns, 5 seeds, some of both", wide, World(both, alike(0.1), alike(5))
    for count in (3, 8):
        title, seeds = f"one order, {count} seeds", alike(count)
        yield title, one, World(none, alike(0.1), seeds, 0.6, order)
        yield f"{title}, some of both", one, World(both, alike(0.1), seeds, 0.6, order)
        for row, name in ((3, "one row"), (0, "the reference")):
            jumpy = World(none, widest(row), seeds, 0.6, order)
            yield f"{title}, {name} varies 4 times as much", one, jumpy
        uneven = World(none, in_turn(0.05, 0.1, 0.2), seeds, 0.6, order)
        yield f"{title}, spreads of 0.05, 0.1 and 0.2", one, uneven
        orders = World(none, alike(0.1), seeds, 0.6, in_turn(0.0, 0.0, 1.0))
        yield f"two orders, {count} seeds", one, orders
        yield f"{title}, but nothing in common", one, World(none, alike(0.1), seeds, 0.0, order)


def main() -> int:
    """Simulate and print; 1 if a rate is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    one, wide = ItemFolder().find(["simcse:table1", "simcse_plus_plus:table1"])
    (swept,) = ItemFolder().find(["simcse:table3"])
    slack = 2 * float(np.sqrt(0.05 * 0.95 / options.tables))
    faults = 0
    print(
        f"{options.tables} tables each. Tables with a wrong statement, a wrong cell, at most 5 %:"
    )
    for title, item, world in worlds(one, wide, swept):
        claims, cells, said = wrong_tables(item, options.tables, options.seed, world)
        faults += max(claims, cells) > 0.05 + slack
        about = f"{item.name}; {said:.0%} of statements decided"
        print(f"{claims:7.1%} {cells:7.1%}  {title} ({about})", flush=True)
    print("Exact replications, values that agree, about 95 %; tables where any differs:")
    for deviation in (0.3, 0.5, 1.0):
        for seeds in (3, 5):
            agree, bad = replications(one, options.tables, options.seed, deviation, seeds)
            faults += not 0.92 <= agree <= 0.97 or bad > 0.05 + slack
            print(f"{agree:7.1%} {bad:7.1%}  spread {deviation}, {seeds} seeds", flush=True)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
