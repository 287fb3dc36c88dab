"""The rows of a sheet as documents."""

import pytest

from contrasent.documents.tables import read_rows


@pytest.mark.parametrize(("cells", "columns", "texts"), [
    # Numbers alone have no column to read: the sheet is one document, and its rows are none.
    ([["a", "b"], ["1", "2"], ["3", "4"]], "", [("a | b", "1 | 2", "3 | 4")]),
    ([["name", "amount"], ["nut", "2"]], "fields: name, amount", [("name: nut; amount: 2",)]),
    # What stands above the names is a document of its own; empty rows and columns are left out.
    (
        [["In stock", "", ""], ["", "", ""], ["name", "", "amount"], ["nut", "", "2"]],
        "fields: name, amount", [("In stock",), ("name: nut; amount: 2",)],
    ),
    ([["one", "alone"]], "", [("one | alone",)]),
    ([], "", []),
])  # fmt: skip
def test_a_sheet(cells, columns, texts):
    chosen, documents = read_rows(cells, "stock.xlsx", "stock.xlsx", None)
    assert chosen == columns
    sections = [document.sections for document in documents]
    assert [[part.paragraphs for part in some] for some in sections] == [[text] for text in texts]
