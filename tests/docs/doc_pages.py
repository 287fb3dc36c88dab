"""The pages' blocks of code, as a reader sees them."""

import re
import shlex
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("research/**/*.md")]
    if "reference" not in path.relative_to(ROOT).parts
)


class Block:
    """A fenced block of a page.

    Attributes:
        language: after the fence.
        text: between the fences.
        line: of the opening fence, from 1.
        note: the comment before it, as (verb, rest): "not run", "parse only" or "small" (options
            that make its commands quick; of Python a text and what stands for it, "a -> b").
    """

    def __init__(self, language, text, line, note):
        self.language, self.text, self.line, self.note = language, text, line, note

    @property
    def commands(self):
        """Shell commands, continued lines joined and comments dropped."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks(page):
    """All fenced blocks of a page."""
    found, lines = [], (ROOT / page).read_text("utf-8").splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        fence = line.strip()
        if not fence.startswith("```"):
            at += 1
            continue
        indent, start = len(line) - len(line.lstrip()), at
        note = ("", "")
        before = lines[at - 1].strip() if at else ""
        if before.startswith("<!--"):
            verb, _, rest = before.removeprefix("<!--").removesuffix("-->").strip().partition(":")
            note = (verb.strip(), rest.strip())
        at += 1
        text = []
        while not lines[at].strip().startswith("```"):
            text.append(lines[at][indent:])
            at += 1
        found.append(Block(fence[3:].split(" ")[0], "\n".join(text), start + 1, note))
        at += 1
    return found


def links(text):
    """Targets of a page's links, as (path, anchor); neither code nor other sites."""
    bare = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", bare):
        if not re.match(r"https?:|mailto:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def forget(words):
    """Remove what a command is going to make, so that pages may repeat one another."""
    again = {"--resume", "--overwrite", "--add", "--upsert", "--update"}
    if words[1] in {"evaluate", "compare", "reproduce"} or again & set(words):
        return
    for flag in ("-o", "--output"):
        if flag in words:
            path = Path(words[words.index(flag) + 1])
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
