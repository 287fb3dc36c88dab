"""Quality on everyday text, so that an adaptation that forgot the rest of the language is seen."""

from contextlib import suppress

import numpy as np

from contrasent.adapt.verdict import General
from contrasent.errors import DataError
from contrasent.evaluate.sts import sts
from contrasent.search.exact import unit
from contrasent.text.datafiles import data_folder
from contrasent.text.datasets import sts_pairs
from contrasent.types import EncodeFn

PROBE = """
The shop closes at six.|They shut the store at 6 pm.|The shop opens at six.
A child is feeding ducks.|A kid gives bread to some ducks.|A duck is chasing a child.
He forgot to lock the door.|The door was left unlocked by him.|He forgot to paint the door.
Rain is expected tomorrow.|The forecast for tomorrow is wet.|Rain was heavy yesterday.
The bridge was built in 1890.|The bridge dates from 1890.|The bridge was torn down in 1990.
She teaches physics.|She is a physics teacher.|She studies physics at school.
The train was half an hour late.|The train came thirty minutes behind time.|The train left early.
Nobody answered the phone.|The call was not picked up.|Everybody has a new phone.
The soup is too salty.|There is too much salt in the soup.|The soup needs more salt.
A man is playing the violin.|Someone performs on a violin.|A man is buying a violin.
Prices went up again.|Everything has become dearer once more.|Prices went down again.
The dog sleeps under the table.|Beneath the table a dog is asleep.|The dog eats from the table.
I cannot find my keys.|My keys are lost.|I found your keys.
The film lasted three hours.|It was a three-hour movie.|The film starts in three hours.
They moved to a bigger flat.|They now live in a larger apartment.|They moved a sofa in the flat.
The mayor resigned.|The head of the city stepped down.|The mayor was elected again.
Turn left at the church.|By the church, go to the left.|Turn right at the church.
The cup broke when it fell.|It dropped, and the cup was in pieces.|The cup was filled to the brim.
Bees make honey.|Honey is produced by bees.|Bears like honey.
Our team lost the final.|We were beaten in the last match.|Our team won the final.
The river froze last winter.|Last winter there was ice on the river.|The river flooded last winter.
She speaks four languages.|She can talk in four tongues.|She wrote four books on language.
The meeting was put off.|They postponed the meeting.|The meeting went off well.
He is allergic to nuts.|Nuts make him ill.|He is fond of nuts.
The museum is free on Sundays.|On Sundays you need not pay there.|The museum is closed on Sundays.
The patient is recovering.|The sick person is getting better.|The patient is getting worse.
A woman is cutting onions.|Onions are being sliced by a woman.|A woman is planting onions.
The car would not start.|It was impossible to get the engine running.|The car would not stop.
This water is safe to drink.|You can drink this water.|This water is poisonous.
The library has a new roof.|The roof of the library was replaced.|The library has new books.
He earns less than his wife.|His wife has a higher income than he.|He earns more than his wife.
The lecture was boring.|The talk was dull.|The lecture was fascinating.
They got married in spring.|Their wedding was in the spring.|They got divorced in spring.
Two cats are fighting.|A pair of cats has a scuffle.|Two cats are sleeping.
The window faces the sea.|From the window one looks at the ocean.|The window faces the street.
The lamp needs a new bulb.|The bulb of the lamp has to be replaced.|The lamp needs a new shade.
She refused the offer.|She turned the proposal down.|She accepted the offer.
The path is steep.|The trail climbs sharply.|The path is flat.
The bread is still warm.|The loaf has not cooled yet.|The bread is already stale.
The soldiers retreated.|The troops fell back.|The soldiers advanced.
He borrowed ten euros from me.|I lent him ten euros.|I borrowed ten euros from him.
The exam was easier than I thought.|I expected a harder test.|The exam was harder than I thought.
Smoking is forbidden here.|You must not smoke in this place.|Smoking is allowed here.
The baby has just fallen asleep.|The infant went to sleep a moment ago.|The baby just woke up.
The hotel was fully booked.|There was no room left at the hotel.|The hotel was almost empty.
She painted the fence green.|The fence got a coat of green from her.|She painted the green field.
The king had no children.|The monarch left no heirs.|The king had many children.
Turn the volume down.|Make it quieter.|Turn the volume up.
The flight was cancelled.|The plane did not fly after all.|The flight was on time.
It takes an hour on foot.|One walks for sixty minutes.|It takes an hour by car.
"""
"""Our own: a sentence, one that says the same, one that shares its words and says another thing."""


def check(base: EncodeFn, chosen: EncodeFn) -> General:
    """Measure two models: on STS-B's dev split where ``CONTRASENT_DATA`` has it, else on the probe.

    Args:
        base: before.
        chosen: after.
    """
    if data_folder() is not None:
        with suppress(DataError):  # the folder need not have STS-B
            sts_pairs("STSB", split="dev")
            before, after = (
                sts(encode, tasks=("STSB",), split="dev", resamples=0).rows[0].value
                for encode in (base, chosen)
            )
            return General("STS-B (dev, Spearman)", before, after)
    return General("the probe of 50 sentences", probe(base), probe(chosen))


def probe(encode: EncodeFn) -> float:
    """Share of the probe's sentences that are nearer to what says the same than to the other."""
    rows = [line.split("|") for line in PROBE.strip().splitlines()]
    vectors = unit(encode([text for row in rows for text in row])).reshape(len(rows), 3, -1)
    same = np.einsum("nd,nd->n", vectors[:, 0], vectors[:, 1])
    other = np.einsum("nd,nd->n", vectors[:, 0], vectors[:, 2])
    return float(np.mean(same > other))
