"""MkDocs hooks: add pages for the files of the repository that pages link to, so that every link stays in the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BESIDE = "repository"
"""The folder of the site for files outside docs/."""
_LARGEST = 64 * 1024
"""Bytes: a larger file, such as a lock file, gets no page."""
_LINK = re.compile(r"(?<=\]\()[^)\s#:]+(?=[)#\s])")
"""The target of a relative link or an image, without its anchor."""
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_PICTURES = {".png", ".svg"}
_LANGUAGES = {".yaml": "yaml", ".py": "python", ".sh": "sh", ".sql": "sql", ".json": "json", ".service": "ini", ".timer": "ini"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Use the anchors of code hosts for headings, so that links work in both places."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file and folder outside docs/ that a page links to, directly or through other such pages."""
    waiting = {file.src_uri: file.content_string for file in files.documentation_pages()}
    while waiting:
        uri, text = waiting.popitem()
        for path in _led_to(text, uri):
            there = _uri(path)
            if files.get_file_from_path(there) is None:
                waiting[there] = _content(path)
                files.append(File.generated(config, there, content=waiting[there], inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrite links to the paths of the site, and code in tables as code hosts show it."""
    uri = page.file.src_uri

    def shown(found: re.Match[str]) -> str:
        path = _target(found[0], _folder_of(uri))
        return found[0] if path is None else posixpath.relpath(_uri(path), posixpath.dirname(uri) or ".")

    return _ROW.sub(_without_escapes, _LINK.sub(shown, markdown))


def _without_escapes(row: re.Match[str]) -> str:
    """Remove the backslash before a bar inside code, which code hosts need and Python-Markdown shows."""
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])


def _led_to(text: str, uri: str) -> Iterator[Path]:
    targets = (_target(found[0], _folder_of(uri)) for found in _LINK.finditer(text))
    yield from (path for path in targets if path is not None)


def _folder_of(uri: str) -> Path:
    """Return the folder of the repository that the links of a page are relative to."""
    inside = uri.removeprefix(f"{BESIDE}/")
    return (DOCS / uri if inside == uri else ROOT / inside).parent


def _target(link: str, folder: Path) -> Path | None:
    """Return the file or folder of the repository that a link points to, None for any other link."""
    path = (folder / link).resolve()
    if not path.exists() or not path.is_relative_to(ROOT):
        return None
    return path / "README.md" if (path / "README.md").is_file() else path


def _uri(path: Path) -> str:
    """Return the name of a file or folder of the repository in MkDocs."""
    is_inside = path.is_relative_to(DOCS)
    name = path.relative_to(DOCS).as_posix() if is_inside else f"{BESIDE}/{path.relative_to(ROOT).as_posix()}"
    if path.is_dir():
        return f"{name}/index.md"
    return name if is_inside or path.suffix == ".md" else f"{name}.md"


def _content(path: Path) -> str:
    if path.is_dir():
        return _listing(path)
    text = path.read_text("utf-8")
    return text if path.suffix == ".md" else _as_it_is(path, text)


def _listing(folder: Path) -> str:
    names = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))
    return "\n".join([f"# `{folder.relative_to(ROOT).as_posix()}/`", "", *map(_entry, names)]) + "\n"


def _entry(path: Path) -> str:
    if path.suffix in _PICTURES:
        return f"\n![{path.stem}]({path.name})\n"
    return f"* [{path.name}]({path.name})" if _is_shown(path) else f"* {path.name}"


def _is_shown(path: Path) -> bool:
    if path.is_relative_to(DOCS):
        return path.suffix != ".py"
    return path.is_dir() or path.stat().st_size <= _LARGEST


def _as_it_is(path: Path, text: str) -> str:
    """Return a page that shows a file as code; the search leaves it out."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    heading = f"---\nsearch:\n  exclude: true\n---\n# `{path.relative_to(ROOT).as_posix()}`\n"
    return f"{heading}\n{fence}{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
