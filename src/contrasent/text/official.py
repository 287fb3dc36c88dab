"""The official sizes of named data sets, and where each file lies.

Sizes are SemEval's and SentEval's. A digest is over the gold scores, so that an edited gold file
is found whatever its white space; the sentences come in two forms and in copies whose tokenisation
differs a little, so they are counted and not hashed.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subset:
    """One part of a year's STS set.

    Attributes:
        name: as in the file names, such as "MSRpar".
        lines: lines in the input and in the gold file.
        annotated: how many have a score; in 2015 and 2016 most lines have none.
        digest: of the gold scores, see :func:`contrasent.text.datasets.score_digest`.
    """

    name: str
    lines: int
    annotated: int
    digest: str


STS_YEARS: dict[str, tuple[Subset, ...]] = {
    "STS12": (
        Subset("MSRpar", 750, 750, "60d4939f0043f20e"),
        Subset("MSRvid", 750, 750, "7d945f19c07b1a2b"),
        Subset("SMTeuroparl", 459, 459, "b66b0ae242830353"),
        Subset("surprise.OnWN", 750, 750, "538526672d116eaf"),
        Subset("surprise.SMTnews", 399, 399, "7653a35689f32296"),
    ),
    "STS13": (
        Subset("FNWN", 189, 189, "92da0f0cf76e5f34"),
        Subset("headlines", 750, 750, "eb2c6a852cc89a41"),
        Subset("OnWN", 561, 561, "6a2b811c10d5fdd2"),
    ),
    "STS14": (
        Subset("deft-forum", 450, 450, "069a69aa5d710bf7"),
        Subset("deft-news", 300, 300, "c61a0734ec64f647"),
        Subset("headlines", 750, 750, "4b6b38e9d1113105"),
        Subset("images", 750, 750, "26fb3ef939a3c24b"),
        Subset("OnWN", 750, 750, "fa22d2e816e58f8c"),
        Subset("tweet-news", 750, 750, "6df2ef14904cf598"),
    ),
    "STS15": (
        Subset("answers-forums", 2000, 375, "f1a4d210a943453f"),
        Subset("answers-students", 1500, 750, "d1f8315497951538"),
        Subset("belief", 2000, 375, "75098dfae4f21594"),
        Subset("headlines", 1500, 750, "8eed57bfb7a5c7bb"),
        Subset("images", 1500, 750, "0862bee9c248d3ff"),
    ),
    "STS16": (
        Subset("answer-answer", 1572, 254, "e4082b425772e562"),
        Subset("headlines", 1498, 249, "5d025b347a1ff9ed"),
        Subset("plagiarism", 1271, 230, "39ce59b8f5ad11fe"),
        Subset("postediting", 3287, 244, "ce63d5a95dab51c7"),
        Subset("question-question", 1555, 209, "3da564f7649df89e"),
    ),
}
"""STS13 has no SMT part: it is licensed, and SentEval leaves it out too."""


@dataclass(frozen=True, slots=True)
class Table:
    """One file of scored pairs.

    Attributes:
        path: below the form's folder.
        rows: pairs in it.
        digest: of the gold scores.
    """

    path: str
    rows: int
    digest: str


STS_TABLES: dict[str, dict[str, Table]] = {
    "STSB": {
        "train": Table("STSBenchmark/sts-train.csv", 5749, "6d28e6e0411114d0"),
        "dev": Table("STSBenchmark/sts-dev.csv", 1500, "0b1b287306039034"),
        "test": Table("STSBenchmark/sts-test.csv", 1379, "bfcc3be0b6984777"),
    },
    "SICKR": {
        "train": Table("SICK/SICK_train.txt", 4500, "5088e27852c23ecc"),
        "dev": Table("SICK/SICK_trial.txt", 500, "bc2c7fc19ba004cf"),
        "test": Table("SICK/SICK_test_annotated.txt", 4927, "8bf6fe6b3bd88119"),
    },
    "STSB-de": {
        "dev": Table("stsb-de-dev.csv", 1500, "0b1b287306039034"),
        "test": Table("stsb-de-test.csv", 1379, "bfcc3be0b6984777"),
    },
    "STSB-es": {
        "dev": Table("stsb-es-dev.csv", 1500, "0b1b287306039034"),
        "test": Table("stsb-es-test.csv", 1379, "bfcc3be0b6984777"),
    },
}

STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
"""The seven sets that SimCSE and its successors average."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A data set on the hub at a fixed revision; the revision is a hash of its content.

    Attributes:
        repository: "owner/name" of a data set.
        revision: 40 hexadecimal digits.
        rows: pairs in each split that is there, by our split names.
        config: the folder or prefix of the wanted part, if the repository has several.
    """

    repository: str
    revision: str
    rows: dict[str, int]
    config: str = ""


STS_PINS: dict[str, Pin] = {
    "STS12": Pin("mteb/sts12-sts", "a0d554a64d88156834ff5ae9920b964011b16384", {"test": 3108}),
    "STS13": Pin("mteb/sts13-sts", "7e90230a92c190f1bf69ae9002b8cea547a64cca", {"test": 1500}),
    "STS14": Pin("mteb/sts14-sts", "6031580fec1f6af667f0bd2da0a551cf4f0b2375", {"test": 3750}),
    "STS15": Pin("mteb/sts15-sts", "ae752c7c21bf194d8b67fd573edf7ae58183cbe3", {"test": 3000}),
    "STS16": Pin("mteb/sts16-sts", "4d8694f8f0e0100860b497b999b3dbed754a0513", {"test": 1186}),
    "STSB": Pin(
        "mteb/stsbenchmark-sts",
        "b0fddb56ed78048fa8b90373c8a3cfc37b684831",
        {"train": 5749, "dev": 1500, "test": 1379},
    ),
    "SICKR-all": Pin("mteb/sickr-sts", "20a6d6f312dd54037fe07a32d58e5e168867909d", {"test": 9927}),
    "STSB-de": Pin(
        "mteb/stsb_multi_mt",
        "29afa2569dcedaaa2fe6a3dcfebab33d28b82e8c",
        {"dev": 1500, "test": 1379},
        "de",
    ),
    "STSB-es": Pin(
        "mteb/stsb_multi_mt",
        "29afa2569dcedaaa2fe6a3dcfebab33d28b82e8c",
        {"dev": 1500, "test": 1379},
        "es",
    ),
}
"""The revisions that mteb 2.26 pins in its own tasks' metadata; all of them hold the raw form.

SICK-R on the hub is one list of all 9,927 pairs, so it can stand for "SICKR-all" only.
"""


@dataclass(frozen=True, slots=True)
class TransferFile:
    """One file of a transfer task.

    Attributes:
        split: "all" where folds are drawn from the whole, else "train", "dev" or "test".
        path: below SentEval's ``downstream`` folder.
        rows: examples in it.
        label: the class of every line, where a file holds one class only.
    """

    split: str
    path: str
    rows: int
    label: int | None = None


TRANSFER_FILES: dict[str, tuple[TransferFile, ...]] = {
    "MR": (
        TransferFile("all", "MR/rt-polarity.pos", 5331, 1),
        TransferFile("all", "MR/rt-polarity.neg", 5331, 0),
    ),
    "CR": (
        TransferFile("all", "CR/custrev.pos", 2407, 1),
        TransferFile("all", "CR/custrev.neg", 1368, 0),
    ),
    "SUBJ": (
        TransferFile("all", "SUBJ/subj.objective", 5000, 1),
        TransferFile("all", "SUBJ/subj.subjective", 5000, 0),
    ),
    "MPQA": (
        TransferFile("all", "MPQA/mpqa.pos", 3312, 1),
        TransferFile("all", "MPQA/mpqa.neg", 7294, 0),
    ),
    "SST2": (
        TransferFile("train", "SST/binary/sentiment-train", 67349),
        TransferFile("dev", "SST/binary/sentiment-dev", 872),
        TransferFile("test", "SST/binary/sentiment-test", 1821),
    ),
    "TREC": (
        TransferFile("train", "TREC/train_5500.label", 5452),
        TransferFile("test", "TREC/TREC_10.label", 500),
    ),
    "MRPC": (
        TransferFile("train", "MRPC/msr_paraphrase_train.txt", 4076),
        TransferFile("test", "MRPC/msr_paraphrase_test.txt", 1725),
    ),
}

TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
