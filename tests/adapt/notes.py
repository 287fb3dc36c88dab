"""Notes to adapt to."""


def write_notes(folder, sentences, numbers, words=""):
    """Notes of a title and three sentences."""
    folder.mkdir(exist_ok=True)
    for n in numbers:
        body = " ".join(sentences[(n * 5 + i * 7) % 800] for i in range(3))
        text = f"# Note {n} {sentences[n]}\n\n{body}{words} Filed as k{n:03d}.\n"
        (folder / f"note-{n:03d}.md").write_text(text)
    return folder
