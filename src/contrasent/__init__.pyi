from contrasent.adapt.run import adapt_index as adapt_index, update_adaptation as update_adaptation
from contrasent.errors import UserError as UserError
from contrasent.evaluate.diff import diff_models as diff_models
from contrasent.evaluate.sts import sts as sts
from contrasent.evaluate.suite import evaluate_model as evaluate_model
from contrasent.indexing.build import index_folder as index_folder
from contrasent.indexing.changes import (
    add_rows as add_rows,
    change_model as change_model,
    remove_rows as remove_rows,
)
from contrasent.indexing.following import sync_index as sync_index, watch_index as watch_index
from contrasent.indexing.models import Index as Index
from contrasent.indexing.searching import (
    evaluate_index as evaluate_index,
    search_index as search_index,
)
from contrasent.model.opening import Encoder as Encoder
from contrasent.report import Report as Report, Row as Row
from contrasent.serve.run import serve_model as serve_model
from contrasent.text.corpus import open_corpus as open_corpus
from contrasent.train.fit import fit as fit
from contrasent.train.settings import Settings as Settings
from contrasent.types import (
    Batch as Batch,
    EncodeFn as EncodeFn,
    Tokens as Tokens,
    Vectors as Vectors,
)

__version__: str
